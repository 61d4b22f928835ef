"""docs/deployment.md: its examples are what a deployment takes, and what it says of settings is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from airflow.configuration import conf

from onceover.config.clients import resolve
from onceover.config.flow.load import load_flow
from onceover.config.flow.sides import resolve_clients

PROJECT: Final = Path(__file__).parents[3]
PAGE: Final = (PROJECT / "docs" / "deployment.md").read_text(encoding="utf-8")
EXAMPLES: Final = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
KUBERNETES: Final = PROJECT / "docker" / "kubernetes"
CLIENTS: Final = "/run/secrets/clients"


def example(kind: str) -> str:
    """Return the page's only example of a kind."""
    (text,) = (text for name, text in EXAMPLES if name == kind)
    return str(text)


def commands() -> list[list[str]]:
    """Return all that is typed in a shell on the page, by words."""
    shells = [text for name, text in EXAMPLES if not name]
    return [shlex.split(line, comments=True) for text in shells for line in text.splitlines()]


def test_the_flow_finds_its_client_files_as_containers_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readable by all, in the place that is an engine's; the same files are put there and named."""
    mounted = tmp_path / "run" / "secrets"
    monkeypatch.setattr(resolve, "MOUNTED_SECRETS", mounted)
    folder = mounted / "clients"
    folder.mkdir(parents=True)
    properties = example("properties")
    for side in ("east", "west"):
        path = folder / f"{side}.properties"
        path.write_text(properties.replace("west", side))
        path.chmod(0o444)
    flow = tmp_path / "orders.yaml"
    flow.write_text(example("yaml").replace(CLIENTS, str(folder)))
    source, target = resolve_clients(load_flow(flow, environ={}), {})
    assert (source.alias, target.alias) == ("east", "west")
    named = {f"{side}{suffix}" for side in ("east", "west") for suffix in (".properties", "-ca.pem")}
    (put,) = [words for words in commands() if words[:1] == ["install"]]
    assert put[1:3] == ["-m", "444"]
    assert {*put[3:-1]} == named
    assert put[-1] == f"docker/secrets/{CLIENTS.rpartition('/')[2]}"
    assert target.properties["ssl.ca.location"] == f"{CLIENTS}/west-ca.pem"


def wanted(document: Any) -> set[tuple[str, str]]:
    """Return the Secrets, and the keys in them, that pods mount."""
    found: set[tuple[str, str]] = set()
    if isinstance(document, dict):
        if "secretName" in document:
            items = document.get("items", [{"key": ""}])
            found |= {(document["secretName"], item["key"]) for item in items}
        parts = list(document.values())
    else:
        parts = document if isinstance(document, list) else []
    return found.union(*map(wanted, parts))


def test_every_secret_that_kubernetes_wants_is_made() -> None:
    """With each of its keys: those that pods mount, and those that the chart's templates read."""
    documents = [each for path in KUBERNETES.iterdir() for each in yaml.safe_load_all(path.read_text())]
    chart = {
        ("onceover-airflow", key) for key in ("connection", "fernet-key", "api-secret-key", "jwt-secret")
    }
    made: set[tuple[str, str]] = set()
    for words in commands():
        if words[:4] == ["kubectl", "create", "secret", "generic"]:
            files = [word.partition("=")[2] for word in words[5:]]
            keys = {"" if file == "clients" else file.partition("=")[0] for file in files}
            made |= {(words[4], key) for key in keys}
    assert made == wanted(documents) | chart


def test_what_make_secrets_makes_is_called_so() -> None:
    """The commands are typed in its folder, where what it does not make is put, too: it is nobody else's."""
    script = (PROJECT / "docker" / "make-secrets").read_text(encoding="utf-8")
    files = {
        word.rpartition("=")[2]
        for words in commands()
        if words[:2] == ["kubectl", "create"] and words[2] == "secret"
        for word in words[5:]
    }
    missing = {name for name in files if f"put {name} " not in script}
    assert missing == {"clients", "connection", "approval-key"}
    assert 'mkdir -m 0755 "$new/clients"' in script
    typed = commands()
    assert typed.index(["cd", "docker/secrets"]) < typed.index(
        ["head", "-c", "32", "/dev/urandom", ">", "approval-key"]
    )
    assert "`docker/secrets/connection`" in PAGE


def test_settings_and_defaults_are_those_of_this_airflow() -> None:
    """The table: what is set (test_patience.py holds it), and what Airflow does by itself."""
    rows = re.findall(r"^\| `\[(\w+)\] (\w+)`.*? \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    values = yaml.safe_load((KUBERNETES / "values.yaml").read_text(encoding="utf-8"))
    apart = {each["name"]: each["value"] for each in values["scheduler"]["env"]}
    for section, key, value, default in rows:
        variable = f"AIRFLOW__{section}__{key}".upper()
        assert values["config"].get(section, {}).get(key, apart.get(variable)) == value
        assert float(str(conf.get_default_value(section, key))) == float(default)

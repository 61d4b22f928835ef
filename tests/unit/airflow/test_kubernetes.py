"""docker/kubernetes: the system of docker-compose.yaml again, as far as the two have the same words.

No chart and no cluster is at hand: what Kubernetes makes of these files is not tested.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[3]
FOLDER = PROJECT / "docker" / "kubernetes"
# Where secrets are mounted, and what only one of the two needs.
SECRETS = "/run/secrets/onceover/"


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    """The chart's values."""
    document: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of docker-compose.yaml."""
    text = (PROJECT / "docker-compose.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


@pytest.fixture(scope="module")
def pods() -> dict[str, Any]:
    """The pods of the manifests, by the name of their Deployment."""
    documents = [
        document
        for name in ("spark.yaml", "metrics.yaml")
        for document in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
    ]
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in documents
        if each["kind"] == "Deployment"
    }


def told(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a list of variables by their names; None for what Kubernetes fills in."""
    return {each["name"]: each.get("value") for each in entries}


@pytest.mark.parametrize("name", ["spark-master", "spark-worker", "onceover-metrics"])
def test_pods_run_what_containers_run(name: str, pods: dict[str, Any], services: dict[str, Any]) -> None:
    """The same commands and settings; clusters are elsewhere, and a pod is known by its address."""
    (container,) = pods[name]["containers"]
    command = [word.replace(SECRETS, "/run/secrets/") for word in container["command"]]
    if "$(POD_IP)" in command:
        place = command.index("$(POD_IP)")
        del command[place - 1 : place + 1]
    assert command == services[name]["command"]
    settings, known = told(container["env"]), services[name]["environment"]
    own = {"POD_IP", "ONCEOVER_EAST", "ONCEOVER_WEST", "ONCEOVER_FLOWS"}
    assert {key: value for key, value in settings.items() if key not in own} == {
        key: value for key, value in known.items() if key not in own
    }
    # The master needs no cluster, and a Service called spark-master would set what Spark reads.
    assert name == "onceover-metrics" or pods[name]["enableServiceLinks"] is False


def test_airflow_is_told_what_it_is_told_in_containers(
    values: dict[str, Any], services: dict[str, Any]
) -> None:
    """Options and variables that both have say the same."""
    known = services["airflow-scheduler"]["environment"]
    mine = {
        f"AIRFLOW__{section.upper()}__{key.upper()}": value
        for section, options in values["config"].items()
        for key, value in options.items()
    }
    mine |= told(values["env"])
    assert {"AIRFLOW__CORE__PARALLELISM", "ONCEOVER_COPY_POOL", "ONCEOVER_COPY_SLOTS"} <= mine.keys()
    elsewhere = {"ONCEOVER_EAST", "ONCEOVER_WEST", "ONCEOVER_FLOWS"}
    both = (mine.keys() & known.keys()) - elsewhere
    assert {key: mine[key] for key in both} == {key: known[key] for key in both}
    lock = tomllib.loads((PROJECT / "uv.lock").read_text(encoding="utf-8"))
    (locked,) = [each["version"] for each in lock["package"] if each["name"] == "apache-airflow"]
    assert (values["airflowVersion"], values["executor"]) == (locked, known["AIRFLOW__CORE__EXECUTOR"])


def test_a_stop_ends_tasks_first_there_too(values: dict[str, Any], services: dict[str, Any]) -> None:
    """The same script, as long; and Kubernetes waits as long as an engine does."""
    scheduler, known = values["scheduler"], services["airflow-scheduler"]
    assert scheduler["args"][2].startswith(f"exec {' '.join(known['command'][:5])}")
    assert f"{scheduler['terminationGracePeriodSeconds']}s" == known["stop_grace_period"]


def test_no_secret_is_written_down(values: dict[str, Any]) -> None:
    """They are Secrets of the cluster, by name."""
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.iterdir())
    assert "kind: Secret" not in text
    assert {values[key] for key in values if key.endswith("SecretName")} == {"onceover-airflow"}
    assert "airflow pools set" in values["migrateDatabaseJob"]["args"][2]

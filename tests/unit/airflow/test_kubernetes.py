"""docker/kubernetes: the system of docker-compose.yaml again, as far as the two have the same words.

No chart and no cluster is at hand: what Kubernetes makes of these files is not tested.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from onceover.config.clients.resolve import check_private
from onceover_airflow.approvals.seal import KEY_VARIABLE

PROJECT = Path(__file__).parents[3]
FOLDER = PROJECT / "docker" / "kubernetes"
# Where secrets are mounted, and what only one of the two needs.
SECRETS = "/run/secrets/onceover/"
# What the chart calls a release that is called airflow.
FULL_NAME = '{{ include "airflow.fullname" . }}'
# Parts of the chart whose probes run /entrypoint, and whose sidecars run /clean-logs, unless told otherwise
# (apache/airflow, chart/templates/_helpers.yaml and the deployments); and what compose calls them.
PARTS = {
    "scheduler": "airflow-scheduler",
    "dagProcessor": "airflow-dag-processor",
    "triggerer": "airflow-triggerer",
}
# Who reads client files, in the chart; and what compose calls them.
TALKERS = {"scheduler": "airflow-scheduler", "apiServer": "airflow-api-server"}
PROBES = {
    ("scheduler", "startupProbe"),
    ("scheduler", "livenessProbe"),
    ("dagProcessor", "livenessProbe"),
    ("triggerer", "livenessProbe"),
}


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
    elsewhere = {"ONCEOVER_EAST", "ONCEOVER_WEST", "ONCEOVER_FLOWS", "ONCEOVER_CONNECT"}
    both = (mine.keys() & known.keys()) - elsewhere
    assert "AIRFLOW__CORE__EXECUTION_API_SERVER_URL" in both
    assert {key: mine[key].replace(FULL_NAME, "airflow") for key in both} == {key: known[key] for key in both}
    lock = tomllib.loads((PROJECT / "uv.lock").read_text(encoding="utf-8"))
    (locked,) = [each["version"] for each in lock["package"] if each["name"] == "apache-airflow"]
    assert (values["airflowVersion"], values["executor"]) == (locked, known["AIRFLOW__CORE__EXECUTOR"])


def test_a_stop_ends_tasks_first_there_too(values: dict[str, Any], services: dict[str, Any]) -> None:
    """The same script, as long; and Kubernetes waits as long as an engine does."""
    scheduler, known = values["scheduler"], services["airflow-scheduler"]
    command = scheduler["args"][2].replace(FULL_NAME, "airflow").partition(" exec ")[2]
    # Logs are served there: they are on a volume of the scheduler's.
    assert [*command.split(), "--skip-serve-logs"] == known["command"]
    assert f"{scheduler['terminationGracePeriodSeconds']}s" == known["stop_grace_period"]


def test_the_page_is_one_process_there_too(values: dict[str, Any], services: dict[str, Any]) -> None:
    """What it draws is what that process has seen."""
    command = values["apiServer"]["args"][2].partition(" exec ")[2]
    assert command.split() == services["airflow-api-server"]["command"]


def test_nothing_runs_what_our_image_lacks(values: dict[str, Any], services: dict[str, Any]) -> None:
    """Who cannot be asked how he is, is killed every few minutes: the scheduler with its drivers."""
    for part, probe in PROBES:
        found = values[part][probe]
        assert found["command"] == services[PARTS[part]]["healthcheck"]["test"][1:], part
        # As long as the same check may take in a container.
        assert f"{found['timeoutSeconds']}s" == services[PARTS[part]]["healthcheck"]["timeout"]
    assert [part for part in PARTS if values[part]["logGroomerSidecar"]["enabled"]] == []
    assert values["createUserJob"]["enabled"] is False
    lines = (FOLDER / "values.yaml").read_text(encoding="utf-8").splitlines()
    told = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    assert not re.search(r"/entrypoint|/clean-logs", told)


def test_a_scheduler_has_the_time_that_its_script_takes(values: dict[str, Any]) -> None:
    """To forget one that was killed, and to sit out a database that is away, which its check needs."""
    startup, liveness = (values["scheduler"][f"{kind}Probe"] for kind in ("startup", "liveness"))
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 300
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 1800


def test_variables_are_what_the_chart_makes_of_them(values: dict[str, Any]) -> None:
    """Of its lists it renders names and values; the rest it takes as text (chart/templates/_helpers.yaml)."""
    parts = [part for part in values.values() if isinstance(part, dict)]
    lists = [values["env"], *(part["env"] for part in parts if "env" in part)]
    assert {tuple(entry) for entries in lists for entry in entries} == {("name", "value")}
    assert all(isinstance(entry["value"], str) for entries in lists for entry in entries)
    (address,) = yaml.safe_load(values["extraEnv"])
    assert address == {
        "name": "SPARK_LOCAL_HOSTNAME",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    }


def test_client_files_are_found_where_they_are_in_containers(
    values: dict[str, Any], pods: dict[str, Any], services: dict[str, Any]
) -> None:
    """By all who talk to clusters; readable by the group that each pod's volumes get, and by nobody else."""
    mounts = {
        **{part: (values[part]["extraVolumes"], values[part]["extraVolumeMounts"]) for part in TALKERS},
        **{
            name: (pods[name]["volumes"], pods[name]["containers"][0]["volumeMounts"])
            for name in ("spark-worker", "onceover-metrics")
        },
    }
    for name, (volumes, places) in mounts.items():
        (volume,) = [each["secret"] for each in volumes if each["name"] == "onceover-clients"]
        assert volume == {"secretName": "onceover-clients", "optional": True, "defaultMode": 0o440}, name
        (place,) = [each["mountPath"] for each in places if each["name"] == "onceover-clients"]
        compose = services[TALKERS.get(name, name)]["volumes"]
        assert f"./docker/secrets/clients:{place}:ro" in compose, name
        check_private(
            os.stat_result((stat.S_IFREG | 0o440, 0, 0, 1, 0, 0, 0, 0, 0, 0)), Path(place) / "x.yaml"
        )
        if name in pods:
            assert pods[name]["securityContext"] == {"fsGroup": values["gid"]}
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert f"--uid {values['uid']} " in dockerfile
    assert values["gid"] == values["uid"]


def test_nothing_that_runs_handlers_may_talk_to_kubernetes(
    values: dict[str, Any], pods: dict[str, Any]
) -> None:
    """They are somebody's code."""
    assert values["allowPodLaunching"] is False
    assert [name for name, pod in pods.items() if pod.get("automountServiceAccountToken") is not False] == []


def test_a_question_outlives_the_container_that_has_asked(values: dict[str, Any]) -> None:
    """The key of approvals is its user's alone, as what reads it wants, and the same behind a restart."""
    scheduler = values["scheduler"]
    key = told(values["env"])[KEY_VARIABLE]
    (place,) = [each["mountPath"] for each in scheduler["extraVolumeMounts"] if each["name"] == "approvals"]
    assert scheduler["args"][2].startswith(f"install -m 600 {place}/approval-key {key} && exec ")
    (volume,) = [each["secret"] for each in scheduler["extraVolumes"] if each["name"] == "approvals"]
    assert volume["items"] == [{"key": "approval-key", "path": "approval-key"}]


def test_no_secret_is_written_down(values: dict[str, Any]) -> None:
    """They are Secrets of the cluster, by name."""
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.iterdir())
    assert "kind: Secret" not in text
    assert {values[key] for key in values if key.endswith("SecretName")} == {"onceover-airflow"}
    assert "airflow pools set" in values["migrateDatabaseJob"]["args"][2]

"""docker-compose.yaml: the embedded system again, in the same versions, on loopback, without secrets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from onceover.process.guard import protection
from onceover_airflow.approvals.seal import KEY_VARIABLE
from onceover_lab.embed.jars import DEFAULT_VERSION

PROJECT = Path(__file__).parents[3]
SERVICES = {
    "postgres",
    "kafka-east",
    "kafka-west",
    "kafka-connect",
    "airflow-migrate",
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-dag-processor",
    "spark-master",
    "spark-worker",
}
ONE_SHOT = {"airflow-migrate"}
REFERENCE = re.compile(r"\$\{([A-Z_]+)(:-[^}]*|:\?[^}]*)?\}")
SECRET_NAME = re.compile(r"PASSWORD$|SECRET(_KEY)?$|FERNET_KEY$|SQL_ALCHEMY_CONN(_ASYNC)?$")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file, with anchors and merges resolved."""
    document: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text(encoding="utf-8"))
    return document


UV = PROJECT / "scripts" / "uv.txt"


def requirements(name: str) -> dict[str, str]:
    """Return the pinned packages of a requirements file."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (PROJECT / name).read_text(encoding="utf-8"), re.M)
    return dict(pins)


def test_all_parts_are_there(compose: dict[str, Any]) -> None:
    """Nothing of the promised system is missing, nothing else runs."""
    assert set(compose["services"]) == SERVICES


def test_kafka_has_the_version_of_the_embedded_clusters(compose: dict[str, Any]) -> None:
    """Brokers and Connect are the pinned release."""
    images = {name: compose["services"][name].get("image") for name in SERVICES if name.startswith("kafka")}
    assert set(images.values()) == {f"apache/kafka:{DEFAULT_VERSION}"}


def test_airflow_and_spark_come_from_the_lock(compose: dict[str, Any]) -> None:
    """One image installs requirements.txt, which says what uv.lock says."""
    own = [name for name in SERVICES if name.startswith(("airflow", "spark"))]
    assert {compose["services"][name]["build"]["dockerfile"] for name in own} == {"docker/Dockerfile"}
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert "--requirement requirements.txt" in dockerfile
    assert "apache-airflow" not in dockerfile
    lock = tomllib.loads((PROJECT / "uv.lock").read_text(encoding="utf-8"))
    locked = {package["name"]: package.get("version") for package in lock["package"]}
    exported = requirements("requirements.txt")
    for package in ("apache-airflow", "apache-airflow-providers-apache-spark", "pyspark", "pyspark-client"):
        assert exported[package] == locked[package]


def test_nothing_without_a_hash_gets_into_the_image() -> None:
    """Neither packages nor what builds them; both files say what uv.lock says."""
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip install (.*?)(?:&&|$)", dockerfile.replace("\\\n", " "), re.M)
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation" in line for line in installs)
    assert "--no-build-isolation --requirement requirements.txt" in installs[1]
    for name in ("requirements.txt", "docker/requirements.txt"):
        entries = re.split(r"\n(?=[a-z])", (PROJECT / name).read_text(encoding="utf-8").strip())
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    builders, packages = requirements("docker/requirements.txt"), requirements("requirements.txt")
    assert {name: builders[name] for name in builders.keys() & packages.keys()}.items() <= packages.items()
    assert {"hatchling", "setuptools", "asyncpg"} <= builders.keys()


def test_nothing_without_a_hash_builds_a_package_in_a_checkout() -> None:
    """What builds runs as whoever types `make setup`; uv would fetch the newest, and look at no hash."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["uv"]["no-build-isolation"] is True
    lock = tomllib.loads((PROJECT / "uv.lock").read_text(encoding="utf-8"))
    own = next(package for package in lock["package"] if package["name"] == "onceover")
    builders = {each["name"] for each in own["dev-dependencies"]["build"]}
    # Of hatchling: this package; of setuptools and wheel: pyspark, as any that names no builder of its own.
    assert {"hatchling", "editables", "setuptools", "wheel"} <= builders
    # They are there before anything is built with them, and stay when the rest comes.
    assert builders <= {each["name"] for each in own["dev-dependencies"]["dev"]}
    for script in ("setup", "kerberos"):
        syncs = re.findall(
            r"^ *scripts/uv sync (.*)$", (PROJECT / "scripts" / script).read_text(encoding="utf-8"), re.M
        )
        assert len(syncs) == 2, script
        assert "--inexact --only-group build" in syncs[0], script


def test_uv_is_fetched_by_its_hash() -> None:
    """Where there is none, scripts/uv installs the pinned one, and only if it is that."""
    script = (PROJECT / "scripts" / "uv").read_text(encoding="utf-8")
    assert "--only-binary :all: --require-hashes --requirement" in script
    assert re.fullmatch(
        r"#[^\n]*\nuv==[0-9.]+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", UV.read_text(encoding="utf-8")
    )


def test_python_of_the_image_fits_the_project() -> None:
    """The interpreter is one that the project supports."""
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.search(r"^FROM python:(3\.[0-9]+)-", dockerfile, re.M)
    assert found is not None
    assert project["requires-python"].startswith(f">={found[1]}")
    assert f"python{found[1]}/site-packages/pyspark" in dockerfile


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    """Nobody else in the network reaches a broker, a UI or the database."""
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(published) == 5
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert not any(service.get("network_mode") for service in compose["services"].values())
    assert "ports" not in compose["services"]["postgres"]


def test_no_secret_is_written_down(compose: dict[str, Any]) -> None:
    """Every secret is a variable without a default; the script that makes them knows them all."""
    script = (PROJECT / "docker" / "make-env").read_text(encoding="utf-8")
    wanted: set[str] = set()
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if SECRET_NAME.search(name):
                references = REFERENCE.findall(str(value))
                assert references, f"{name} holds a literal"
                assert all(default.startswith(":?") for _, default in references), name
                wanted |= {variable for variable, _ in references}
    assert wanted == {match for match in re.findall(r"^ *echo \"([A-Z_]+)=", script, re.M)}
    assert (PROJECT / "docker" / ".gitignore").read_text(encoding="utf-8").split() == [".env"]


def test_every_lasting_service_says_whether_it_is_well(compose: dict[str, Any]) -> None:
    """A health check each; who depends on another waits for more than its start."""
    services = compose["services"]
    assert {name for name in SERVICES if "healthcheck" not in services[name]} == ONE_SHOT
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            done = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert wait == {"condition": done}, f"{name} -> {other}"


def test_mounted_files_and_volumes_exist(compose: dict[str, Any]) -> None:
    """A missing file would be mounted as an empty directory without a word."""
    for name, service in compose["services"].items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            known = (PROJECT / source).exists() if source.startswith(".") else source in compose["volumes"]
            assert known, f"{name}: {mount}"


def mounted(compose: dict[str, Any], name: str) -> dict[str, str]:
    """Return what a service finds where, by place in it."""
    mounts = [mount.split(":") for mount in compose["services"][name].get("volumes", [])]
    return {place: source for source, place, *_ in mounts}


def test_the_image_holds_what_it_says_that_it_runs(compose: dict[str, Any]) -> None:
    """Plugins serve pages and guard them: a folder without them is found by nobody."""
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    let_in = (PROJECT / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    for folder in ("dags", "plugins", "include", "spark_jobs"):
        assert re.search(rf"^COPY {folder} {folder}$", dockerfile, re.M), folder
        assert f"!{folder}" in let_in
    for name in sorted(SERVICES):
        if name.startswith("airflow"):
            settings = compose["services"][name]["environment"]
            for part in ("DAGS", "PLUGINS"):
                place = settings[f"AIRFLOW__CORE__{part}_FOLDER"]
                assert mounted(compose, name)[place] == f"./{part.lower()}"


def test_spark_finds_nothing_of_airflows(compose: dict[str, Any]) -> None:
    """A handler is somebody's code: neither passwords nor what seals an approval are in its containers."""
    airflow = compose["services"]["airflow-scheduler"]["environment"]
    secret = (airflow["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"], airflow[KEY_VARIABLE])
    home = mounted(compose, "airflow-scheduler")
    closed = {volume for place, volume in home.items() for path in secret if path.startswith(f"{place}/")}
    assert closed == {"airflow-home"}
    for name in SERVICES:
        settings = compose["services"][name].get("environment", {})
        if name.startswith("airflow"):
            assert settings[KEY_VARIABLE] == airflow[KEY_VARIABLE]
        else:
            assert not closed & set(mounted(compose, name).values()), name
            assert not [key for key in settings if key.startswith("AIRFLOW")], name
    assert mounted(compose, "spark-master") == {}
    flows, files = airflow["ONCEOVER_FLOWS"], airflow["ONCEOVER_HOME"]
    assert mounted(compose, "spark-worker") == {flows: home[flows], files: home[files]}


def test_flows_find_both_clusters_in_driver_and_executors(compose: dict[str, Any]) -> None:
    """The flow files read ONCEOVER_EAST and ONCEOVER_WEST, in Airflow's tasks and in Spark's workers."""
    for name in ("airflow-scheduler", "airflow-dag-processor", "spark-worker"):
        settings = compose["services"][name]["environment"]
        assert (settings["ONCEOVER_EAST"], settings["ONCEOVER_WEST"]) == (
            "kafka-east:29092",
            "kafka-west:29092",
        )
        for side in ("east", "west"):
            listeners = compose["services"][f"kafka-{side}"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
            assert f"INTERNAL://kafka-{side}:29092" in listeners


def test_the_spark_cluster_talks_to_nobody_without_its_secret(compose: dict[str, Any]) -> None:
    """Master and worker as a job of ours wants them, with the secret that its tasks have."""
    scheduler = compose["services"]["airflow-scheduler"]["environment"]
    for name in ("spark-master", "spark-worker"):
        settings = compose["services"][name]["environment"]
        assert settings["_SPARK_AUTH_SECRET"] == scheduler["ONCEOVER_SPARK_SECRET"]
        options = dict(
            each.removeprefix("-D").split("=") for each in settings["SPARK_DAEMON_JAVA_OPTS"].split()
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ONCEOVER_SPARK_SECRET", "a-secret-of-this-test")
            assert protection(scheduler["ONCEOVER_SPARK_MASTERS"]).items() <= options.items()
        assert options["spark.master.rest.enabled"] == "false"

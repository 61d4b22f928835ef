"""docker-compose.yaml: the embedded system again, in the same versions, on loopback, without secrets.

Its commands are run as processes in tests/integration/around/test_deployment.py.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.configuration import conf
from cryptography.fernet import Fernet

from onceover.config.clients.resolve import check_private
from onceover.process.guard import SECRET_FILE_VARIABLE, protection
from onceover_airflow.approvals.seal import KEY_VARIABLE
from onceover_airflow.jobs.operators import STOP_BUDGET_S
from onceover_airflow.starting.pools import AUDIT_POOL_VARIABLE, POOL_VARIABLE, SLOTS_VARIABLE
from onceover_lab.embed.airflow import COMPONENTS
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
    "airflow-triggerer",
    "spark-master",
    "spark-worker",
    "onceover-metrics",
    "prometheus",
    "grafana",
}
ONE_SHOT = {"airflow-migrate"}
OURS = sorted(name for name in SERVICES if name.startswith(("airflow", "spark", "onceover")))
AIRFLOWS = sorted(name for name in SERVICES if name.startswith("airflow"))
REFERENCE = re.compile(r"\$\{([A-Z_]+)(:-[0-9]+)?\}")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|FERNET_KEY|SQL_ALCHEMY_CONN|AUTH_(TOKEN|KEY)")
# Who reads client files, and where they are.
TALKERS = ("airflow-api-server", "airflow-scheduler", "spark-worker", "onceover-metrics")
CLIENTS = Path("/run/secrets/clients")
# The user of our image, and where it may write in it.
UID = "50000"


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
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert "--requirement requirements.txt" in dockerfile
    assert "apache-airflow" not in dockerfile
    lock = tomllib.loads((PROJECT / "uv.lock").read_text(encoding="utf-8"))
    locked = {package["name"]: package.get("version") for package in lock["package"]}
    exported = requirements("requirements.txt")
    for package in ("apache-airflow", "apache-airflow-providers-apache-spark", "pyspark", "pyspark-client"):
        assert exported[package] == locked[package]


def test_one_service_builds_the_image_that_all_of_ours_run(compose: dict[str, Any]) -> None:
    """Several would export it under one name at once, which fails; and no registry is asked for it."""
    services = compose["services"]
    assert {name: service["build"] for name, service in services.items() if "build" in service} == {
        "airflow-migrate": {"context": ".", "dockerfile": "docker/Dockerfile"}
    }
    ours = [services[name] for name in OURS]
    assert {(each["image"], each.get("pull_policy")) for each in ours} == {("onceover:local", "never")}


def test_nothing_without_a_hash_gets_into_the_image() -> None:
    """Neither packages nor what builds them; both files say what uv.lock says."""
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip install (.*?)(?:&&|$)", dockerfile.replace("\\\n", " "), re.M)
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation" in line for line in installs)
    assert "--no-build-isolation --requirement requirements.txt" in installs[2]
    for name in ("requirements.txt", "docker/requirements.txt", "docker/native.txt"):
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


def test_images_of_others_have_a_version(compose: dict[str, Any]) -> None:
    """What `latest` is tomorrow nobody has looked at."""
    images = [service["image"] for name, service in compose["services"].items() if name not in OURS]
    assert [image for image in images if not re.search(r":v?[0-9]+(\.[0-9]+)*$", image)] == []


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    """Nobody else in the network reaches a broker, a UI or the database."""
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(published) == 8
    assert [port for port in published if not re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port)] == []
    assert len({port.split(":")[2] for port in published}) == len(published)
    assert not any(service.get("network_mode") for service in compose["services"].values())
    assert "ports" not in compose["services"]["postgres"]


def test_nothing_secret_is_in_the_file_or_in_an_environment(compose: dict[str, Any]) -> None:
    """What an engine's `inspect` shows is no secret: variables name files."""
    for name, service in compose["services"].items():
        secrets = {f"/run/secrets/{secret}" for secret in service.get("secrets", [])}
        used = set()
        for key, value in service.get("environment", {}).items():
            if SECRET_NAME.search(key) and key != AIRFLOWS_PASSWORDS:
                assert re.search(r"_CMD$|_FILE$", key), f"{name}: {key}"
                used.add(str(value).removeprefix("cat "))
        used |= {word for word in service.get("command", []) if word.startswith("/run/secrets/")}
        assert used <= secrets, name
        # The step that puts the login's password into place reads it by itself.
        assert secrets - used == ({"/run/secrets/airflow_passwords"} if name in ONE_SHOT else set()), name
    references = REFERENCE.findall((PROJECT / "docker-compose.yaml").read_text(encoding="utf-8"))
    assert {name for name, _ in references} == {name for name, _ in references if name.endswith("_PORT")}
    assert all(default for _, default in references)


AIRFLOWS_PASSWORDS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"


def test_airflow_asks_commands_only_for_what_it_asks_commands_for(compose: dict[str, Any]) -> None:
    """Of any other option it would pass a `_CMD` over without a word."""
    asked = set()
    for name in AIRFLOWS:
        for key in compose["services"][name]["environment"]:
            if found := re.fullmatch(r"AIRFLOW__([A-Z_]+?)__([A-Z_]+)_CMD", key):
                asked.add((found[1].lower(), found[2].lower()))
    assert len(asked) == 4
    assert asked <= conf.sensitive_config_values


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder docker with the secrets that its script makes."""
    folder = tmp_path_factory.mktemp("docker")
    (folder / "make-secrets").write_text((PROJECT / "docker" / "make-secrets").read_text())
    done = subprocess.run(["bash", folder / "make-secrets"], capture_output=True, text=True, check=True)
    values = [path.read_text() for path in secret_files(folder)]
    assert [value for value in values if value in done.stdout + done.stderr] == []
    return folder


def secret_files(folder: Path) -> list[Path]:
    """Return what the script has made, without the folder for client files."""
    return [path for path in (folder / "secrets").iterdir() if path.is_file()]


def test_secrets_are_files_that_nobody_else_on_the_machine_reaches(
    compose: dict[str, Any], made: Path
) -> None:
    """A folder of its owner's, in it what containers of other users can read: an engine changes no mode."""
    assert stat.S_IMODE((made / "secrets").stat().st_mode) == 0o700
    files = {path.name: path for path in secret_files(made)}
    wanted = {name: entry["file"] for name, entry in compose["secrets"].items()}
    assert wanted == {name: f"docker/secrets/{name}" for name in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o644}
    assert {path.name for path in made.iterdir()} == {"make-secrets", "secrets"}
    assert "secrets" in (PROJECT / "docker" / ".gitignore").read_text(encoding="utf-8").split()


def test_secrets_fit_together_and_are_what_their_readers_take(made: Path) -> None:
    """A password twice, a key that is one, JSON, a property; long enough; made anew each time."""
    values = {path.name: path.read_text() for path in secret_files(made)}
    assert f"airflow:{values['database_password']}@postgres/airflow" in values["airflow_database"]
    assert values["spark_properties"] == f"spark.authenticate.secret {values['spark_secret']}"
    (user, password), *others = json.loads(values["airflow_passwords"]).items()
    assert (user, others) == ("admin", [])
    Fernet(values["airflow_fernet_key"])
    # As Airflow asks of it.
    assert len(values["airflow_jwt_secret"]) >= 64
    assert all(
        len(value) >= 24 and not re.search(r"\s", value) for value in (password, values["spark_secret"])
    )
    # Each its own.
    assert len({*values.values(), password}) == len(values) + 1


def test_client_files_are_found_wherever_clusters_are_talked_to(compose: dict[str, Any], made: Path) -> None:
    """By tasks and drivers, the page, lanes and the exporter; handed over as all other secrets are."""
    clients = made / "secrets" / "clients"
    assert (stat.S_IMODE(clients.stat().st_mode), list(clients.iterdir())) == (0o755, [])
    for name in TALKERS:
        assert mounted(compose, name).get(str(CLIENTS)) == "./docker/secrets/clients", name
    # Of whoever made it, readable by all, in a folder that nobody else gets through.
    check_private(os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 1000, 0, 0, 0, 0, 0)), CLIENTS / "x.yaml")


def test_secrets_that_exist_are_kept(made: Path) -> None:
    """The database can be opened with its password only."""
    before = (made / "secrets" / "database_password").read_text()
    done = subprocess.run(["bash", made / "make-secrets"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert (made / "secrets" / "database_password").read_text() == before


def test_secrets_made_at_once_are_one_set(tmp_path: Path) -> None:
    """Whoever comes second keeps what is there, and puts nothing into it."""
    script = tmp_path / "make-secrets"
    script.write_text((PROJECT / "docker" / "make-secrets").read_text())
    running = [
        subprocess.Popen(["bash", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(6)
    ]
    said = [process.communicate() for process in running]
    assert sorted(process.returncode for process in running) == [0, 2, 2, 2, 2, 2], said
    assert {path.name for path in tmp_path.iterdir()} == {"make-secrets", "secrets"}
    assert [path for path in (tmp_path / "secrets").iterdir() if path.is_dir()] == [
        tmp_path / "secrets" / "clients"
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"bob": "planted-7f3a"}', '{"admin": ""}', '{"admin": 1}'])
def test_a_login_without_a_password_is_refused_before_airflow_makes_one(tmp_path: Path, text: str) -> None:
    """It would print it. Nothing is begun, what was there is kept, and nothing of the file is shown."""
    (tmp_path / "airflow_passwords").write_text(text)
    kept = tmp_path / "passwords.json"
    kept.write_text("{}")
    environ = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "ONCEOVER_SECRETS": str(tmp_path),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(kept),
    }
    done = subprocess.run(
        ["bash", PROJECT / "docker" / "prepare-airflow"], env=environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, kept.read_text()) == (1, "", "{}")
    assert "airflow_passwords" in done.stderr
    assert "planted" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


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
            if source == "./docker/secrets/clients":
                continue
            known = (PROJECT / source).exists() if source.startswith(".") else source in compose["volumes"]
            assert known, f"{name}: {mount}"


def mounted(compose: dict[str, Any], name: str) -> dict[str, str]:
    """Return what a service finds where, by place in it."""
    mounts = [mount.split(":") for mount in compose["services"][name].get("volumes", [])]
    return {place: source for source, place, *_ in mounts}


def test_who_writes_has_a_volume_where_its_user_may(compose: dict[str, Any]) -> None:
    """A volume takes its owner from the folder of the image: one that is not there is root's."""
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(rf"useradd .*--uid {UID} onceover", dockerfile)
    assert re.search(rf"^USER {UID}$", dockerfile, re.M)
    made = re.search(r"mkdir -p ([^\\\n]+) \\\n", dockerfile)
    owned = re.search(r"chown onceover ([^\n]+)\n", dockerfile)
    assert made and owned and made[1] == owned[1]
    writable = set()
    for name in OURS:
        mounts = [mount.split(":") for mount in compose["services"][name].get("volumes", [])]
        # The project's own files are read only.
        assert all(mode == ["ro"] for source, _, *mode in mounts if source.startswith(".")), name
        writable |= {place for source, place, *_ in mounts if not source.startswith(".")}
    assert writable == set(made[1].split())


def test_spark_works_where_it_may_write_and_cleans_up(compose: dict[str, Any]) -> None:
    """By default it works where it is installed, which is root's, and keeps all jobs' files for ever."""
    worker = compose["services"]["spark-worker"]
    command = worker["command"]
    assert command[command.index("--work-dir") + 1] in mounted(compose, "spark-worker")
    assert "-Dspark.worker.cleanup.enabled=true" in worker["environment"]["SPARK_WORKER_OPTS"].split()


def test_a_stop_ends_tasks_first_and_in_time(compose: dict[str, Any]) -> None:
    """Before an engine kills them, and while all that they talk to is there."""
    scheduler = compose["services"]["airflow-scheduler"]
    interpreter, script, patience_s, silence_s, health, *command = scheduler["command"]
    assert (interpreter, script) == ("python", "/opt/onceover/docker/tasks_first.py")
    # Airflow takes one for alive that it has heard of within half a minute.
    assert float(silence_s) >= 10 * conf.getfloat("scheduler", "scheduler_health_check_threshold")
    (asked,) = [
        word for word in compose["services"]["airflow-api-server"]["healthcheck"]["test"] if "/" in word
    ]
    assert f"'{health.replace('airflow-api-server', '127.0.0.1')}'" in asked
    assert command == ["airflow", *COMPONENTS["scheduler"]]
    grace = re.fullmatch(r"([0-9]+)s", scheduler["stop_grace_period"])
    assert grace and STOP_BUDGET_S < float(patience_s) <= int(grace[1]) - 10
    behind: set[str] = set()
    todo = ["airflow-scheduler"]
    while todo:
        found = set(compose["services"][todo.pop()].get("depends_on", {})) - behind
        behind |= found
        todo += found
    assert {
        "airflow-api-server",
        "postgres",
        "kafka-east",
        "kafka-west",
        "spark-master",
        "spark-worker",
    } <= behind
    assert all(compose["services"][name]["init"] is True for name in OURS)


def test_copies_leave_slots_for_approvals_and_audits(compose: dict[str, Any]) -> None:
    """Twelve that have no end, and four slots beside them; the pool is made by the name that tasks have."""
    for name in AIRFLOWS:
        settings = compose["services"][name]["environment"]
        slots, most = int(settings[SLOTS_VARIABLE]), int(settings["AIRFLOW__CORE__PARALLELISM"])
        assert (settings[POOL_VARIABLE], slots >= 8, most - slots >= 4) == ("onceover_copies", True, True)
        audits = int(settings["ONCEOVER_AUDIT_SLOTS"])
        assert (settings[AUDIT_POOL_VARIABLE], 0 < audits < most - slots) == ("onceover_audits", True)
    script = (PROJECT / "docker" / "prepare-airflow").read_text(encoding="utf-8")
    assert f'airflow pools set "${POOL_VARIABLE}" "${SLOTS_VARIABLE}"' in script


def test_the_flows_are_watched(compose: dict[str, Any]) -> None:
    """The exporter is scraped, by the rules of this release; the dashboard finds that Prometheus."""
    services = compose["services"]
    command = services["onceover-metrics"]["command"]
    port = command[command.index("--port") + 1]
    files = mounted(compose, "prometheus")
    (config_flag,) = [each for each in services["prometheus"]["command"] if each.startswith("--config.file=")]
    place = config_flag.partition("=")[2]
    config = yaml.safe_load((PROJECT / files[place]).read_text(encoding="utf-8"))
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": [f"onceover-metrics:{port}"]}]
    for name in config["rule_files"]:
        assert files[str(Path(place).with_name(name))] == f"./docker/monitoring/{name}"
    settings, files = services["onceover-metrics"]["environment"], mounted(compose, "onceover-metrics")
    assert files == {
        settings["ONCEOVER_FLOWS"]: "./include/flows",
        settings.get("ONCEOVER_HOME"): "metrics-var",
        str(CLIENTS): "./docker/secrets/clients",
    }
    provided = mounted(compose, "grafana")
    place = "/etc/grafana/provisioning"
    source = yaml.safe_load((PROJECT / provided[f"{place}/datasources/onceover.yaml"]).read_text())
    assert [(each["url"], each["isDefault"]) for each in source["datasources"]] == [
        ("http://prometheus:9090", True)
    ]
    boards = yaml.safe_load((PROJECT / provided[f"{place}/dashboards/onceover.yaml"]).read_text())
    (folder,) = [each["options"]["path"] for each in boards["providers"]]
    assert provided[f"{folder}/onceover.json"] == "./docker/monitoring/dashboard.json"


def test_the_image_holds_what_it_says_that_it_runs(compose: dict[str, Any]) -> None:
    """Plugins serve pages and guard them: a folder without them is found by nobody."""
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    let_in = (PROJECT / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    for folder in ("dags", "plugins", "include", "spark_jobs"):
        assert re.search(rf"^COPY {folder} {folder}$", dockerfile, re.M), folder
        assert f"!{folder}" in let_in
    # Where nobody but root writes, each process would compile it anew.
    assert re.search(r"&& python -m compileall -q include spark_jobs \\$", dockerfile, re.M)
    # What is written in C, without its compiler; the sources come first, or the copy would be covered again.
    first, _, last = dockerfile.partition("COPY include include\n")
    assert "RUN python scripts/native.py" in first and "native.txt" not in last
    assert last.startswith("COPY --from=native /opt/onceover/include/onceover include/onceover\n")
    assert {"!scripts/native.py", "!docker/native.txt", "**/*.so"} <= set(let_in)
    scripts = {
        word.removeprefix("/opt/onceover/")
        for name in OURS
        for word in compose["services"][name]["command"]
        if word.startswith("/opt/onceover/")
    }
    assert scripts == {"docker/prepare-airflow", "docker/tasks_first.py"}
    assert re.search(rf"^COPY {' '.join(sorted(scripts))} docker/$", dockerfile, re.M)
    assert {f"!{script}" for script in scripts} <= set(let_in)
    assert (PROJECT / "docker" / "prepare-airflow").stat().st_mode & stat.S_IXOTH
    for name in AIRFLOWS:
        settings = compose["services"][name]["environment"]
        # Kubernetes' chart puts its configuration there, and says so to nobody.
        assert f"ENV AIRFLOW_HOME={settings['AIRFLOW_HOME']}\n" in dockerfile
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
    assert mounted(compose, "spark-worker") == {
        flows: home[flows],
        files: home[files],
        str(CLIENTS): home[str(CLIENTS)],
        "/var/lib/spark": "spark-work",
    }


def test_flows_find_both_clusters_in_driver_and_executors(compose: dict[str, Any]) -> None:
    """The flow files read ONCEOVER_EAST and ONCEOVER_WEST, in Airflow's tasks and in Spark's workers."""
    for name in ("airflow-scheduler", "airflow-dag-processor", "spark-worker", "onceover-metrics"):
        settings = compose["services"][name]["environment"]
        assert (settings["ONCEOVER_EAST"], settings["ONCEOVER_WEST"]) == (
            "kafka-east:29092",
            "kafka-west:29092",
        )
        for side in ("east", "west"):
            listeners = compose["services"][f"kafka-{side}"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
            assert f"INTERNAL://kafka-{side}:29092" in listeners


def test_the_spark_cluster_talks_to_nobody_without_its_secret(compose: dict[str, Any]) -> None:
    """Master and worker as a job of ours wants them; its tasks have the same secret (above)."""
    scheduler = compose["services"]["airflow-scheduler"]
    assert scheduler["environment"][SECRET_FILE_VARIABLE] == "/run/secrets/spark_secret"
    for name in ("spark-master", "spark-worker"):
        command = compose["services"][name]["command"]
        assert command[command.index("--properties-file") + 1] == "/run/secrets/spark_properties"
        options = dict(
            each.removeprefix("-D").split("=")
            for each in compose["services"][name]["environment"]["SPARK_DAEMON_JAVA_OPTS"].split()
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ONCEOVER_SPARK_SECRET", "a-secret-of-this-test")
            assert protection(scheduler["environment"]["ONCEOVER_SPARK_MASTERS"]).items() <= options.items()
        assert options["spark.master.rest.enabled"] == "false"

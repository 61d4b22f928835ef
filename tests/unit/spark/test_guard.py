"""What a Spark job is started with: whom it trusts, what it is not told, what nobody may press."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from onceover.cli.sparkjob import running_job
from onceover.config.flow.load import load_flow
from onceover.errors import UsageError
from onceover.process.children import ChildProcess
from onceover.process.guard import SECRET_FILE_VARIABLE, SECRET_VARIABLE, SPARKS_VARIABLE, take_secret
from onceover.spark.launch.locate import spark_submit
from onceover.spark.launch.submit import AuditOptions, SparkJob, audit_job, replicate_job

SECRET = "planted-5c1e77d09ab34f62"
REMOTE = ["spark://h:7077", "spark://h:1,i:2", "yarn", "k8s://https://h:443"]
FLOW = """
flow: flights
source: {alias: east, connection: kafka_source}
target: {alias: west, client: {bootstrap.servers: "127.0.0.1:2"}}
topics: {include: ["flights.*"]}
"""


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flights.yaml"
    path.write_text(FLOW)
    monkeypatch.setenv("ONCEOVER_HOME", str(tmp_path))
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)
    return path


def jobs(flow: Path, master: str) -> list[SparkJob]:
    loaded = load_flow(flow)
    return [
        replicate_job(loaded, until="caught-up", master=master),
        audit_job(loaded, AuditOptions(), master=master),
    ]


@pytest.mark.parametrize("master", ["local", *REMOTE])
def test_nobody_kills_anything_from_the_ui(flow: Path, master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks nobody for a login."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    assert [job.conf["spark.ui.killEnabled"] for job in jobs(flow, master)] == ["false", "false"]


@pytest.mark.parametrize("master", ["local", *REMOTE])
def test_nobody_is_let_in_without_a_secret(flow: Path, master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local master listens on loopback, where every user of the machine is."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    assert [job.conf["spark.authenticate"] for job in jobs(flow, master)] == ["true", "true"]


@pytest.mark.parametrize("master", REMOTE)
def test_another_machine_is_talked_to_with_a_secret_and_encrypted(
    flow: Path, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without falling back to less; tasks carry a flow's settings, and whoever sends one runs code."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    for job in jobs(flow, master):
        assert job.conf["spark.network.crypto.enabled"] == "true"
        assert job.conf["spark.network.crypto.saslFallback"] == "false"


def test_the_secret_of_a_standalone_cluster_is_in_the_environment_only(
    flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on a command line, nor among the options that the UI shows, nor in a log of the job."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    for job in jobs(flow, "spark://h:7077"):
        given = job.process_environment({"PATH": "/bin", SECRET_VARIABLE: SECRET})
        assert given[SECRET_VARIABLE] == SECRET
        assert SECRET not in f"{job}{job.command()}"


@pytest.mark.parametrize("master", ["local", "yarn", "k8s://https://h:443"])
def test_who_makes_a_secret_of_its_own_gets_none(
    flow: Path, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM alone, YARN and Kubernetes: each application has its own."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    for job in jobs(flow, master):
        given = job.process_environment(
            {SECRET_VARIABLE: SECRET, SPARKS_VARIABLE: SECRET, SECRET_FILE_VARIABLE: SECRET}
        )
        assert SECRET not in str(given)


@pytest.mark.parametrize("secret", [None, "", "   ", "short", "two\nlines-of-some-length", f" {SECRET}"])
def test_a_standalone_master_without_a_good_secret_is_refused(
    flow: Path, secret: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started, and without a word of it."""
    if secret is not None:
        monkeypatch.setenv(SECRET_VARIABLE, secret)
    with pytest.raises(UsageError, match=SECRET_VARIABLE) as caught:
        jobs(flow, "spark://h:7077")
    assert caught.value.code == "SPARK_SECRET"
    assert not (secret and secret.strip()) or secret not in str(caught.value.as_dict())
    assert jobs(flow, "local")


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_secret_in_a_file_reaches_the_job_and_its_place_does_not(
    flow: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an engine of containers hands it over; a handler is not told where it lies."""
    kept = flow.with_name("spark_secret")
    kept.write_text(SECRET + end)
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(kept))
    for job in jobs(flow, "spark://h:7077"):
        given = job.process_environment({"PATH": "/bin", SECRET_FILE_VARIABLE: str(kept)})
        assert given == {"PATH": "/bin", SECRET_VARIABLE: SECRET, **job.environment}


@pytest.mark.parametrize(
    "content",
    [None, b"", b"short", f"{SECRET}\n\n".encode(), b"\xff" * 20, SECRET.encode() + b"\xff", b"s" * 9999],
)
def test_a_file_without_a_good_secret_is_named_and_not_quoted(
    flow: Path, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started; with both variables nobody could tell which one counts."""
    kept = flow.with_name("spark_secret")
    if content is not None:
        kept.write_bytes(content)
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(kept))
    with pytest.raises(UsageError, match=str(kept)) as caught:
        jobs(flow, "spark://h:7077")
    assert (caught.value.code, SECRET in str(caught.value.as_dict())) == ("SPARK_SECRET", False)
    assert SECRET not in repr(caught.value.__context__)
    kept.write_text(SECRET)
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    with pytest.raises(UsageError, match="both set") as both:
        jobs(flow, "spark://h:7077")
    assert both.value.code == "SPARK_SECRET"


def test_the_job_is_not_told_what_is_airflows(flow: Path) -> None:
    """Its database, its keys, other flows' Connections: handlers are somebody's code."""
    kept = {
        "PATH": "/bin",
        "AIRFLOW_HOME": "/airflow",
        "AIRFLOW_CONN_KAFKA_SOURCE": "{}",
        "ONCEOVER_EAST": "h:1",
    }
    dropped = {
        "AIRFLOW__CORE__FERNET_KEY": SECRET,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": SECRET,
        "AIRFLOW__API_AUTH__JWT_SECRET": SECRET,
        "airflow__core__fernet_key": SECRET,
        "_AIRFLOW_WWW_USER_PASSWORD": SECRET,
        "AIRFLOW_CONN_KAFKA_OTHER": SECRET,
        "airflow_conn_kafka_other": SECRET,
        "Airflow_Conn_Kafka_Source": SECRET,
        "AIRFLOW_VAR_PAYROLL_TOKEN": SECRET,
        "airflow_var_payroll_token": SECRET,
        "OPENLINEAGE_API_KEY": SECRET,
        # Somebody's Spark Connect: spark-submit takes no master beside it.
        "SPARK_REMOTE": "sc://elsewhere",
        "SPARK_LOCAL_REMOTE": "1",
        "SPARK_API_MODE": "connect",
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "OPENLINEAGE__TRANSPORT__AUTH__API_KEY": SECRET,
    }
    for job in jobs(flow, "local"):
        given = job.process_environment({**kept, **dropped})
        assert given == {**kept, **job.environment}


def test_who_has_read_the_secret_forgets_it() -> None:
    """The driver wants it once, and what runs in the workers never does."""
    environ = {
        SPARKS_VARIABLE: SECRET,
        SECRET_VARIABLE: SECRET,
        SECRET_FILE_VARIABLE: "/run/secrets/spark_secret",
        "PATH": "/bin",
    }
    assert (take_secret(environ), take_secret(environ), environ) == (SECRET, None, {"PATH": "/bin"})


def test_the_command_line_starts_a_job_with_no_more(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be typed where Airflow's variables are set, as in a container."""
    started: list[dict[str, str]] = []

    def start(*_: object, env: dict[str, str], **__: object) -> Mock:
        started.append(env)
        return Mock(returncode=0, tail=lambda _lines: "")

    monkeypatch.setattr(ChildProcess, "start", start)
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", SECRET)
    with running_job(jobs(flow, "local")[0], "job"):
        pass
    (env,) = started
    assert SECRET not in env.values()
    assert {"PATH", "JAVA_HOME", "PYSPARK_PYTHON"} <= env.keys()


def test_a_machines_own_settings_of_spark_take_nothing_from_a_job_that_it_needs(
    flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count more than the environment, and less than options; executors' Python is theirs to say."""
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    for master in ("local", *REMOTE):
        for job in jobs(flow, master):
            python, cores = job.conf["spark.pyspark.driver.python"], job.conf["spark.task.cpus"]
            assert (python, cores) == (sys.executable, "1")
            assert (job.conf["spark.api.mode"], job.conf["spark.submit.deployMode"]) == ("classic", "client")
            # Which Python takes before SPARK_CONNECT_MODE.
            given = job.process_environment({"SPARK_API_MODE": "connect", SECRET_VARIABLE: SECRET})
            assert given["SPARK_API_MODE"] == "classic"
            here = {job.conf.get(key) for key in ("spark.pyspark.python", "spark.hadoop.fs.defaultFS")}
            assert here == ({sys.executable, "file:///"} if master == "local" else {None})


@pytest.mark.parametrize(
    ("locale", "given"),
    [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", "de_DE.UTF-8"), (None, None)],
)
def test_java_takes_no_name_for_question_marks(flow: Path, locale: str | None, given: str | None) -> None:
    """Nor the folder of a flow for another one beside it."""
    for job in jobs(flow, "local"):
        environment = job.process_environment({} if locale is None else {"LC_ALL": locale})
        assert environment.get("LC_ALL") == given


def test_the_spark_that_runs_is_the_one_that_is_imported(flow: Path) -> None:
    """Another one may be installed, of another version."""
    for job in jobs(flow, "local"):
        given = job.process_environment({"SPARK_HOME": "/opt/spark", "SPARK_CONF_DIR": "/etc/spark"})
        assert (given["SPARK_HOME"], given["SPARK_CONF_DIR"]) == (
            str(spark_submit().parents[1]),
            "/etc/spark",
        )

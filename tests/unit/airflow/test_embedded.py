"""The embedded Airflow's configuration and identity, without starting it."""

from __future__ import annotations

import configparser
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine

from onceover.errors import UsageError
from onceover_lab.embed import airflow
from onceover_lab.embed.airflow import is_healthy
from onceover_lab.embed.airflow_config import AirflowSecrets, render_config
from onceover_lab.embed.airflow_rest import AirflowRest
from onceover_lab.embed.up.airflow import down, note_settings, status


def rendered(home: Path, secret: AirflowSecrets) -> configparser.ConfigParser:
    """Return the configuration as Airflow parses it."""
    parser = configparser.ConfigParser()
    parser.read_string(
        render_config(home, dags=Path("/dags"), plugins=Path("/plugins"), port=4321, secret=secret)
    )
    return parser


def test_server_listens_on_loopback_with_one_port_everywhere(tmp_path: Path) -> None:
    """Host, port, links and the tasks' own connection agree."""
    config = rendered(tmp_path, AirflowSecrets.generate())
    assert (config["api"]["host"], config["api"]["port"]) == ("127.0.0.1", "4321")
    assert config["api"]["base_url"] == "http://127.0.0.1:4321"
    assert config["core"]["execution_api_server_url"] == "http://127.0.0.1:4321/execution/"


def test_tasks_are_patient_with_a_server_that_has_just_started(tmp_path: Path) -> None:
    """On a busy machine its first answer takes longer than Airflow's five seconds."""
    config = rendered(tmp_path, AirflowSecrets.generate())
    assert float(config["workers"]["execution_api_timeout"]) >= 30


def test_a_click_waits_for_whoever_writes_to_the_database(tmp_path: Path) -> None:
    """SQLite has one writer; behind its own five seconds the browser was shown an error of the server."""
    config = rendered(tmp_path, AirflowSecrets.generate())
    engine = create_engine(config["database"]["sql_alchemy_conn"])
    with engine.connect() as connection:
        assert int(connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()) >= 30_000
    engine.dispose()


def test_nothing_is_open_to_everybody_or_reported_to_anybody(tmp_path: Path) -> None:
    """A login is needed, the configuration is not shown, no usage data leaves the machine."""
    config = rendered(tmp_path, AirflowSecrets.generate())
    assert not config["core"].getboolean("simple_auth_manager_all_admins")
    assert not config["api"].getboolean("expose_config")
    assert not config["usage_data_collection"].getboolean("enabled")
    assert not config["core"].getboolean("load_examples")


def test_secrets_survive_a_restart(tmp_path: Path) -> None:
    """Stored Connections can be read with the old Fernet key only."""
    first = AirflowSecrets.generate()
    path = tmp_path / "airflow.cfg"
    path.write_text(render_config(tmp_path, dags=tmp_path, plugins=tmp_path, port=1, secret=first))
    assert AirflowSecrets.read(path) == first
    assert AirflowSecrets.read(tmp_path / "absent.cfg") != first


def test_sections_of_a_persons_own_survive_a_restart(tmp_path: Path) -> None:
    """As lineage.md says: `[openlineage]` in airflow.cfg. What is ours is written anew, keys and port too."""
    first = AirflowSecrets.generate()
    path = tmp_path / "airflow.cfg"
    path.write_text(render_config(tmp_path, dags=tmp_path, plugins=tmp_path, port=1, secret=first))
    with path.open("a") as file:
        file.write('[openlineage]\ntransport = {"type": "http", "url": "http://c:1/%%20"}\n')
    changed = path.read_text().replace("port = 1\n", "port = 9\n")
    text = render_config(tmp_path, dags=tmp_path, plugins=tmp_path, port=2, secret=first, found=changed)
    parser = configparser.ConfigParser()
    parser.read_string(text)
    assert parser["openlineage"]["transport"] == '{"type": "http", "url": "http://c:1/%20"}'
    assert parser["api"]["port"] == "2"
    assert "sections of your own" in text.splitlines()[0]


def test_lineage_is_switched_on_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As lineage.md says; other variables of Airflow would override what it is given here."""
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", "{}")
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    found = airflow.environment_of(tmp_path, "mark", {})
    assert {name for name in found if name.startswith("AIRFLOW__")} == {"AIRFLOW__OPENLINEAGE__TRANSPORT"}


def test_variables_that_change_nothing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that this Airflow is not given, and those that came after it was started."""
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", "new")
    notes: list[str] = []
    note_settings(notes.append, None)
    assert notes == ["AIRFLOW__CORE__EXECUTOR: has no effect on this Airflow, which has settings of its own"]
    note_settings(notes.append, {"AIRFLOW__OPENLINEAGE__TRANSPORT": "new"})
    assert len(notes) == 2
    note_settings(notes.append, {"AIRFLOW__OPENLINEAGE__TRANSPORT": "old"})
    assert "AIRFLOW__OPENLINEAGE__TRANSPORT: has an effect from Airflow's next start" in notes[-1]


@pytest.mark.parametrize("content", [b"", b"[core]\n", b"no section", b"\xff"])
def test_keys_that_are_gone_are_not_replaced_unasked(tmp_path: Path, content: bytes) -> None:
    """What they encrypted would be lost: a person is told, and the file stays as it is."""
    path = tmp_path / "airflow.cfg"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="damaged") as raised:
        AirflowSecrets.read(path)
    assert raised.value.where == str(path)
    assert str(tmp_path) in str(raised.value.resolve)
    assert path.read_bytes() == content


def test_percent_in_a_path_is_kept(tmp_path: Path) -> None:
    """ConfigParser takes % for a reference, and would refuse the file."""
    home = tmp_path / "100%(free)s"
    config = rendered(home, AirflowSecrets.generate())
    assert config["logging"]["base_log_folder"] == str(home / "logs")


def test_secrets_are_random_and_not_shown() -> None:
    """Nor is the password of a client."""
    secret = AirflowSecrets.generate()
    assert AirflowSecrets.generate() != secret
    assert len(secret.jwt_secret) >= 64
    assert secret.fernet_key not in repr(secret)
    assert "hidden" not in repr(AirflowRest(1, username="admin", password="hidden"))


def test_stopping_what_does_not_run_stops_nothing(tmp_path: Path) -> None:
    """Neither a home that was never started nor one whose processes are gone."""
    assert down(tmp_path) is False
    (tmp_path / "onceover.json").write_text('{"mark": "nobody-carries-this", "processes": {"scheduler": 1}}')
    assert down(tmp_path) is False


def test_health_is_a_sign_of_life_after_the_start() -> None:
    """Airflow calls a killed component healthy for half a minute; one that nobody started does not count."""
    now = datetime.now(UTC)

    def health(scheduler: datetime | None, *, database: str = "healthy") -> dict[str, object]:
        beat = None if scheduler is None else scheduler.isoformat()
        return {
            "metadatabase": {"status": database},
            "scheduler": {"status": "healthy", "latest_scheduler_heartbeat": beat},
            "triggerer": {"status": None, "latest_triggerer_heartbeat": None},
        }

    components = ["api-server", "scheduler"]
    assert is_healthy(health(now), components, now)
    assert not is_healthy(health(now - timedelta(seconds=1)), components, now)
    assert not is_healthy(health(None), components, now)
    assert not is_healthy(health(now, database="unhealthy"), components, now)
    assert not is_healthy(health(now), [*components, "triggerer"], now)
    assert not is_healthy(None, components, now)


def test_airflow_that_never_was_has_no_status(tmp_path: Path) -> None:
    """One that was has its address and the file of its password, never the password."""
    assert status(tmp_path) is None
    secret = AirflowSecrets.generate()
    text = render_config(tmp_path, dags=tmp_path, plugins=tmp_path, port=1, secret=secret)
    (tmp_path / "airflow.cfg").write_text(text)
    (tmp_path / "passwords.json").write_text('{"admin": "hidden"}')
    found = status(tmp_path)
    assert found == {
        "alive": False,
        "healthy": False,
        "url": "http://127.0.0.1:1",
        "username": "admin",
        "password_file": str(tmp_path / "passwords.json"),
        "missing": [],
    }


@pytest.mark.parametrize(
    ("environ", "status", "dead"),
    [
        ({airflow.MARK: "another"}, psutil.STATUS_RUNNING, ["scheduler"]),
        ({airflow.MARK: "mark"}, psutil.STATUS_RUNNING, []),
        ({}, psutil.STATUS_RUNNING, []),
        ({}, psutil.STATUS_ZOMBIE, ["scheduler"]),
        (None, psutil.STATUS_RUNNING, ["scheduler"]),
    ],
)
def test_a_process_between_two_programs_is_not_dead(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str] | None, status: str, dead: list[str]
) -> None:
    """It has no variables yet, its mark among them, or has just got them; somebody else's has others."""

    class Process:
        def __init__(self, pid: int) -> None:
            if environ is None:
                raise psutil.NoSuchProcess(pid)

        def environ(self) -> dict[str, str] | None:
            return environ

        def status(self) -> str:
            return status

    monkeypatch.setattr(psutil, "Process", Process)
    assert airflow.State("mark", {"scheduler": 42}).dead() == dead

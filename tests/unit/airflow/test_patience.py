"""How long Airflow's server and database may be away without a copy being ended for it: everywhere the same.

What happens in an Airflow whose server is away, and comes back: tests/system/test_server_away.py.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.configuration import conf

from onceover_lab.embed.airflow_config import PATIENCE, AirflowSecrets, render_config

PROJECT = Path(__file__).parents[3]
HALF_AN_HOUR_S, TEN_MINUTES_S = 1800, 600
FLAT = {f"{section}.{key}": str(value) for section, keys in PATIENCE.items() for key, value in keys.items()}


def embedded() -> Mapping[str, str]:
    """Return what `make up` writes, by section and key."""
    parser = configparser.ConfigParser(interpolation=None)
    secret = AirflowSecrets.generate()
    parser.read_string(render_config(Path("/h"), dags=Path("/d"), plugins=Path("/p"), port=1, secret=secret))
    return {f"{name}.{key}": value for name in parser.sections() for key, value in parser[name].items()}


def in_containers(service: str) -> Mapping[str, str]:
    """Return the settings of a service of docker-compose.yaml."""
    document = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text(encoding="utf-8"))
    return _told(document["services"][service]["environment"])


def chart() -> dict[str, Any]:
    """Return the values for Airflow's chart."""
    text = (PROJECT / "docker" / "kubernetes" / "values.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def on_kubernetes() -> Mapping[str, str]:
    """Return the settings of all of Airflow's pods."""
    config = chart()["config"]
    return {f"{section}.{key}": value for section, keys in config.items() for key, value in keys.items()}


def _told(environment: Mapping[str, Any]) -> Mapping[str, str]:
    parts = {name: name.split("__") for name in environment if name.startswith("AIRFLOW__")}
    return {f"{each[1]}.{each[2]}".lower(): str(environment[name]) for name, each in parts.items()}


@pytest.mark.parametrize(
    "settings",
    [
        embedded,
        on_kubernetes,
        *(
            pytest.param(lambda name=name: in_containers(name), id=name)
            for name in ("airflow-scheduler", "airflow-api-server", "airflow-dag-processor")
        ),
    ],
)
def test_every_airflow_of_ours_is_as_patient(settings: Any) -> None:
    """With tasks whose server does not answer, and with tasks that it has not heard of."""
    assert {key: value for key, value in settings().items() if key in FLAT} == FLAT


def test_the_names_are_airflows_and_the_numbers_are_long_enough() -> None:
    """An option that Airflow does not know would do nothing."""
    for section, keys in PATIENCE.items():
        assert [key for key in keys if conf.get_default_value(section, key) is None] == []
    apart_s = int(str(conf.get_default_value("workers", "min_heartbeat_interval")))
    assert PATIENCE["workers"]["max_failed_heartbeats"] * apart_s >= HALF_AN_HOUR_S
    assert PATIENCE["scheduler"]["task_instance_heartbeat_timeout"] >= TEN_MINUTES_S


def test_the_scheduler_outlives_its_database_where_it_may_be_away() -> None:
    """By default its loop ends behind a second, and what it finds then it takes for a dead one's."""
    apart = {each["name"]: each.get("value") for each in chart()["scheduler"]["env"]}
    for settings in (in_containers("airflow-scheduler"), _told(apart)):
        # It waits up to 5 s between two tries, at random (airflow.utils.retries).
        assert int(settings["database.max_db_retries"]) * 2.5 >= HALF_AN_HOUR_S
        # Whoever looks for dead schedulers behind an outage finds itself.
        assert float(settings["scheduler.orphaned_tasks_check_interval"]) >= 24 * 3600

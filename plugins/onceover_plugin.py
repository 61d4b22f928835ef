"""Registers what Onceover adds to Airflow's web server; what it does is in ``onceover_airflow``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from onceover_airflow import preload
from onceover_airflow.serving import lazy
from onceover_airflow.starting import onewriter, runnames


class OnceoverPlugin(AirflowPlugin):
    """The Onceover page and reports, runs by hand that are called after their flow, SQLite's one writer.

    And what Airflow's processes need that are forked, loaded before they are.
    """

    name = "onceover"
    fastapi_apps = [lazy.registration()]  # noqa: RUF012 - Airflow declares it so
    react_apps = lazy.react_apps()
    listeners = [preload]  # noqa: RUF012 - likewise
    fastapi_root_middlewares = [runnames.registration(), *onewriter.registrations()]  # noqa: RUF012 - likewise

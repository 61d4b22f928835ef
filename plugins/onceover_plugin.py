"""Registers what Onceover adds to Airflow's web server; what it does is in ``onceover_airflow``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from onceover_airflow.serving import lazy
from onceover_airflow.starting import onewriter, runnames


class OnceoverPlugin(AirflowPlugin):
    """The Onceover page and reports, runs by hand that are called after their flow, SQLite's one writer."""

    name = "onceover"
    fastapi_apps = [lazy.registration()]  # noqa: RUF012 - Airflow declares it so
    react_apps = lazy.react_apps()
    fastapi_root_middlewares = [runnames.registration(), *onewriter.registrations()]  # noqa: RUF012 - likewise

"""Registers what Onceover adds to Airflow's web server; what it does is in ``onceover_airflow``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from onceover_airflow.starting import onewriter, runnames
from onceover_airflow.telling import pages


class OnceoverPlugin(AirflowPlugin):
    """The pages that audits leave, runs by hand that are called after their flow, and SQLite's one writer."""

    name = "onceover"
    fastapi_apps = [pages.registration()]  # noqa: RUF012 - Airflow declares it so
    fastapi_root_middlewares = [runnames.registration(), *onewriter.registrations()]  # noqa: RUF012 - likewise

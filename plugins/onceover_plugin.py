"""Registers what Onceover adds to Airflow's web server; what it does is in ``onceover_airflow``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from onceover_airflow import preload
from onceover_airflow.serving import lazy
from onceover_airflow.starting import filledin, onewriter, runnames


class OnceoverPlugin(AirflowPlugin):
    """The Onceover page and reports; forms with the flow that one comes from; names of runs by hand.

    SQLite's one writer; and what Airflow's processes need that are forked, loaded before they are.
    """

    name = "onceover"
    fastapi_apps = [lazy.registration()]  # noqa: RUF012 - Airflow declares it so
    react_apps = lazy.react_apps()
    listeners = [preload]  # noqa: RUF012 - likewise
    fastapi_root_middlewares = [  # noqa: RUF012 - likewise
        runnames.registration(),
        filledin.registration(),
        *onewriter.registrations(),
    ]

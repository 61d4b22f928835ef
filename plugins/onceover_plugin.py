"""Registers Onceover's pages with Airflow; what they do is in ``onceover_airflow``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from onceover_airflow.pages import registration


class OnceoverPlugin(AirflowPlugin):
    """The pages that audits leave."""

    name = "onceover"
    fastapi_apps = [registration()]  # noqa: RUF012 - Airflow declares it so

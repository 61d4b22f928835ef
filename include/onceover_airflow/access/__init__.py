"""Reaching the clusters of a flow with Airflow's Connections, whose secrets no log shows."""

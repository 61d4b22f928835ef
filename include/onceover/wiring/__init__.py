"""Turns a flow file into clusters and use cases: what command line, Spark and Airflow call."""

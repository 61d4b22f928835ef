"""Spark's jobs as Airflow's tasks: started, tried again, told of, judged."""

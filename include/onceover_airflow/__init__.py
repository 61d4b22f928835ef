"""Airflow's side: DAGs, operators and pages over the same code as the command line.

Whatever imports a part of it logs to Airflow, where what others have named is to do nothing.
"""

from onceover_airflow.jobs.tasklog import show_records

show_records()

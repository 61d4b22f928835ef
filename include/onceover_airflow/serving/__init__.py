"""What Airflow's web server shows of ours: reports, and the Onceover page."""

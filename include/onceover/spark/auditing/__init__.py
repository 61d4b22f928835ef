"""The audit as a Spark job."""

"""Before Spark runs: where it is, which masters there are, what is handed to it."""

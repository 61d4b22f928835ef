"""The tasks of the DAGs: what each does, asks and reports."""

"""What a run on a connector writes down, and whose order the workers obey."""

"""What a run is started with: the fields of its form, and its name."""

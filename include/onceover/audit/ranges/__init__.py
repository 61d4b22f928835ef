"""What can be compared, and in which portions."""

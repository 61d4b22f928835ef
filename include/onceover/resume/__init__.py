"""The evidence on which a lane resumes its partitions."""

"""Flow files: read, checked, and what of them a run keeps."""

"""What `onceover metrics` does beside the clusters: looking at flows, as their files ask for."""

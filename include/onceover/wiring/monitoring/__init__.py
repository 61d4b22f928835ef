"""What `onceover metrics` does beside the clusters: looking at flows, writing and reading canaries."""

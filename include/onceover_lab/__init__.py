"""Real clusters on this machine, the demo and the benchmark: what shows the product, and is none of it."""

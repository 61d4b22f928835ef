"""What happens to records on their way: the flow's handler, dead letters, and what the target refused."""

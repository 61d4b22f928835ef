"""What is computed from what was seen, and told: statistics, results, page and picture."""

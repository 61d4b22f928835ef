"""What Prometheus is told of flows: the metrics, the alerts on them, and the text of a scrape."""

"""What Prometheus is told of flows: the metrics, the alerts on them, the text of a scrape; and the canary."""

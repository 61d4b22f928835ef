"""Consumer groups of one cluster, over Kafka's own requests."""

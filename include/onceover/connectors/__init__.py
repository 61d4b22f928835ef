"""Source offsets of Kafka Connect connectors: from the shared topic to their own, and back (KIP-618)."""

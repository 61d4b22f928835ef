"""Edges to Kafka: connections, requests, the transactional producer, the fetcher, the admin client."""

from onceover.kafka.library import without_clients

without_clients()

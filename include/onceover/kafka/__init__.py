"""Edges to Kafka: connections, requests, the transactional producer, the fetcher, the admin client."""

"""Files of Kafka Connect clusters: how workers and their Kafka clusters are reached."""

"""What writes and reads beside the systems under test: records, topics, consumers, latency."""

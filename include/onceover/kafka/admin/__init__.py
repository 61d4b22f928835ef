"""What a cluster keeps beside its records: topics, their configuration, ACLs."""

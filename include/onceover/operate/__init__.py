"""What a person asks of a flow: how it stands, and ways out for stopped partitions."""

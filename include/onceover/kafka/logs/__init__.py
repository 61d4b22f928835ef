"""The logs of partitions, as they are read: batches, where they end, who writes to them."""

"""A rehearsal of a failover: a copy beside the flow, canaries, and everything taken away again."""

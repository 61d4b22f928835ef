"""Proof that both sides hold the same records; shares no copying code with the replicator (G9)."""

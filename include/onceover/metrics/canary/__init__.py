"""A flow's canary: numbered records that are written on the source and met on the target while it copies."""

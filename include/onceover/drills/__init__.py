"""Failover drills: made of the operations that there are, never a second implementation of one."""

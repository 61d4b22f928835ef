"""Offsets topics of Connect: read, ordered, written."""

"""Comparing both sides' records, and naming every difference."""

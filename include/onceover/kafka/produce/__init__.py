"""Producers over raw batches: with transactions, and without."""

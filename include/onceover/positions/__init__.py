"""The offset map: read, kept at hand, kept small, and asked."""

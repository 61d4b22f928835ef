"""The flow's own records of its work against what is there, and the verdict."""

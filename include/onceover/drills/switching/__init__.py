"""A planned switchover: writers are fenced, everything is carried over, copies are given to clients."""

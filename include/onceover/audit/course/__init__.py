"""The course of an audit, and how its tasks cross to the workers."""

"""The Onceover page: every flow at a glance, and one flow in detail. Pure."""

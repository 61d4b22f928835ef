"""Consumer groups: where each goes on, on the other cluster."""

"""What a person at a terminal sees, and how they stop it."""

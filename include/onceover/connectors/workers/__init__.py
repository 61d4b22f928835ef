"""The Connect workers' REST API, and the states that they go through."""

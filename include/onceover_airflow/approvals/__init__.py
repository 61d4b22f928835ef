"""Questions to people, and answers that count."""

"""What a run leaves for people: tables, pages, and a word to whom it concerns."""

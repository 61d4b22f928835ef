"""One module for each command: its arguments into one use case, what it returns into text and document."""

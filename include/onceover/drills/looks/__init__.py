"""What a drill looks at around what it changes: who reads, what is behind, what it would cost."""

"""What an audit shows to people."""

"""What a flow writes down about itself on its target, and how it is read."""

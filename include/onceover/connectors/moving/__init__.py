"""Moving a connector's offsets, step by step, there and back."""

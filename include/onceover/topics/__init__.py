"""Topics of the target: which there are, how they are called, and how they follow the source's."""

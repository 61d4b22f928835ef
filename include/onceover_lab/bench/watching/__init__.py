"""What is seen of a run from outside: CPU and memory of its processes, its progress, the machine."""

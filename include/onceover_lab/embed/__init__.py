"""The embedded system: Java, Kafka's jars, real brokers and MirrorMaker as child processes.

Invariant: whatever this package starts either dies with the process that started it, or is written
down in a registry (``up``/``down``) with enough identity that nothing else is ever signalled.
"""

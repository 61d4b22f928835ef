"""The benchmark: Onceover beside MirrorMaker 2, on the same topics and the same clusters.

``workloads`` says what is copied and by whom, ``stats`` and ``report`` are pure, ``runner`` plays the
rounds. Nothing here takes part in replication.
"""

"""What Spark forks the Python workers of a copy from: what they need is loaded once, before the first.

Otherwise each of them imports it for itself: a second of CPU a lane, at the start and after every kill.
Spark starts it by name (``spark.python.daemon.module``).
"""

from __future__ import annotations

from onceover.spark.unpacked import prefer_unpacked

if __name__ == "__main__":
    prefer_unpacked()
    from onceover.spark.forking import fork_workers

    fork_workers("onceover.spark.worker")

"""What Spark forks the Python workers of an audit from; see ``onceover.spark.daemon``."""

from __future__ import annotations

from onceover.spark.unpacked import prefer_unpacked

if __name__ == "__main__":
    prefer_unpacked()
    from onceover.spark.forking import fork_workers

    fork_workers("onceover.spark.auditing.auditwork")

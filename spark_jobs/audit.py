"""spark-submit's entry point of the audit: everything is in ``onceover.spark.auditing.audit``."""

from __future__ import annotations

import sys

from onceover.spark.session import opening

if __name__ == "__main__":
    session = opening()
    # Loaded while the JVM makes its part of the session.
    from onceover.spark.auditing.audit import main

    sys.exit(main(sys.argv[1:], session))

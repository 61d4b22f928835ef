"""spark-submit's entry point of the audit: everything is in ``onceover.spark.auditing.audit``."""

from __future__ import annotations

import sys

from onceover.spark.auditing.audit import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

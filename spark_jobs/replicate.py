"""spark-submit's entry point of the copy: everything is in ``onceover.spark.driver``."""

from __future__ import annotations

import sys

from onceover.spark.driver import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

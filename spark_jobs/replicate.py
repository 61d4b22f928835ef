"""spark-submit's entry point of the copy: everything is in ``onceover.spark.driver``."""

from __future__ import annotations

import os
import sys

from onceover.spark.unpacked import prefer_unpacked

if __name__ == "__main__":
    jvm = os.getppid()
    prefer_unpacked()
    from onceover.spark.session import opening

    spark = opening(jvm)
    # Loaded while the JVM makes its part of the session.
    from onceover.spark.driver import main

    sys.exit(main(sys.argv[1:], spark))

"""Makes Java and Kafka's jars ready; the second half of ``make setup``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from onceover.errors import OnceoverError, Retriable
from onceover.process.java import ensure_java
from onceover.spark.launch import archive
from onceover_lab.embed.jars import COORDINATES, DEFAULT_VERSION, JAR_SETS, kafka_jars
from onceover_lab.embed.makearchive import make_archive

log = logging.getLogger("setup")

# A trial talks with a broker that starts on a busy machine: one that fails says little.
_TRIES: Final = 3


def main() -> int:
    """Return 0 when everything is there, otherwise the error's exit code after saying what to do."""
    logging.basicConfig(level=logging.INFO, format="   %(message)s", stream=sys.stdout)
    try:
        java = ensure_java()
        log.info("Java %s: %s", java.version, java.executable)
        # At once: resolving is mostly waiting for answers.
        with ThreadPoolExecutor(max_workers=len(COORDINATES)) as executor:
            for (version, jar_set), path in zip(
                COORDINATES, executor.map(lambda item: kafka_jars(*item), COORDINATES), strict=True
            ):
                log.info("Kafka %s, %s: %d jars", version, jar_set, len(list(path.glob("*.jar"))))
        for jar_set in JAR_SETS:
            name = _made(partial(make_archive, DEFAULT_VERSION, jar_set)).name
            log.info("Kafka %s, %s, starts quicker with %s", DEFAULT_VERSION, jar_set, name)
        log.info("Spark starts quicker with %s", _made(archive.make_archive).name)
    except OnceoverError as error:
        log.error("%s", error)  # noqa: TRY400 -- an expected failure: its text says what to do
        return error.exit_code
    return 0


def _made(make: Callable[[], Path]) -> Path:
    for tries_left in range(_TRIES - 1, 0, -1):
        try:
            return make()
        except Retriable as error:
            log.info("once more, %d tries left: %s", tries_left, error)
    return make()


if __name__ == "__main__":
    sys.exit(main())

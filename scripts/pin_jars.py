"""Writes the checksum manifests of Kafka's jars anew, after COORDINATES in jars.py changed.

What is fetched now becomes what every machine expects: look at the difference before committing it.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from onceover_lab.embed import jars

log = logging.getLogger("pin_jars")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for version, jar_set in jars.COORDINATES:
        with tempfile.TemporaryDirectory() as work:
            jars.resolve(version, jar_set, Path(work))
            manifest = jars.make_manifest(Path(work))
        path = Path(jars.__file__).parent / "checksums" / f"kafka-{version}-{jar_set}.txt"
        path.write_text(manifest, encoding="utf-8")
        log.info("%s: %d jars", path.name, len(manifest.splitlines()))


if __name__ == "__main__":
    main()

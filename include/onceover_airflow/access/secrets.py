"""Handing Airflow Connections to the Spark job: through the environment, and nowhere else.

Invariant: a secret of a connection reaches the job's environment and Airflow's masker; no argument,
no Spark option, no XCom and no template field ever holds one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from onceover.config.clients.keys import is_secret

_JAAS_VALUE: Final = re.compile(r"""=\s*(?:"([^"]+)"|'([^']+)')""")
_PEM_FRAME: Final = "-----"


def secret_texts(extra: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text of a Kafka client configuration that must never be shown.

    A value with several lines (PEM) or with assignments in it (JAAS) is yielded whole and in parts,
    because a log may show the parts alone. A key that no client of ours takes counts as secret: the
    run refuses it, and must not show its value while it does.
    """
    for key, value in extra.items():
        if not isinstance(value, str) or not value or not is_secret(key):
            continue
        yield value
        lines = value.splitlines()
        yield from (line.strip() for line in lines if len(lines) > 1 and _PEM_FRAME not in line)
        yield from (double or single for double, single in _JAAS_VALUE.findall(value))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set ``variables`` in this process for a while; a task runs in a process of its own."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

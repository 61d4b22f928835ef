"""What a daemon does that Spark forks Python workers from."""

from __future__ import annotations

import gc
import importlib

import pyspark.worker  # noqa: F401 - what each fork runs
from pyspark.daemon import manager


def fork_workers(work: str) -> None:
    """Load what the workers of a job need, and fork one whenever Spark asks for it.

    Args:
        work: name of the module that holds what they do.
    """
    importlib.import_module(work)
    # All of it stays: no worker looks through it for garbage, which writes to the pages that they share.
    gc.freeze()
    manager()

"""Which release of Onceover this is."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

NOT_INSTALLED: Final = "not installed as a package"


def own_version() -> str | None:
    """Return the version of what runs; None where it is not installed as a package."""
    try:
        return version("onceover")
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return what a report says has made it, by name."""
    return {"onceover": own_version() or NOT_INSTALLED, "python": platform.python_version()}

"""What every page of an audit has in common: its frame, and how it gets onto the disk.

Invariant: a page loads nothing and runs nothing, wherever it is opened. A reader finds the old file or the
new one, never half of one.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from onceover.audit.reportstyle import STYLE
from onceover.shown import html

# Nothing may be loaded, not even by a name that somebody wrote into a topic.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


def frame(title: str, body: str) -> str:
    """Return a whole page.

    Args:
        title: text; ``body``: HTML.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Otherwise browsers ask the server for an icon, which the policy forbids.
        '<link rel="icon" href="data:,">'
        f"<title>{html(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def put(text: str, path: Path) -> None:
    """Write a page; its folder is created, an older file replaced.

    Raises:
        OSError: the file cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise

"""What may stand where a host is named: a name, or an address of either protocol.

Checked when a file is read: what a resolver would choke on (an empty label, where a variable is set to
nothing) is a fault of the file, and not an outage.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

# RFC 1035, and the underscore that container engines put into names.
_LABEL: Final = r"[A-Za-z0-9_-]{1,63}"
_NAME: Final = rf"(?=[^:,/]{{1,254}}(?![^:,/])){_LABEL}(?:\.{_LABEL})*\.?"
# For expressions of larger addresses.
HOST: Final = rf"(?:\[[0-9A-Fa-f:.]+\]|{_NAME})"
_HOST: Final = re.compile(HOST)


def is_host(text: str) -> bool:
    """Tell whether ``text`` can name a host; an IPv6 address stands in brackets."""
    return _HOST.fullmatch(text) is not None


def is_http_address(text: str) -> bool:
    """Tell whether ``text`` is an ``http(s)://`` address with a host and without credentials or blanks."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    plain = "@" not in parts.netloc and not re.search(r"\s", text)
    return parts.scheme in ("http", "https") and plain and port != 0 and is_host(host)


def without_query(address: str) -> str:
    """Return an address for people: who puts a key into one puts it behind the ``?``."""
    path, mark, _ = address.partition("?")
    return f"{path}{mark}…" if mark else path

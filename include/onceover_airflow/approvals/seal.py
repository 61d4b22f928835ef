"""Values between the tasks of a run that nobody else can have written.

Invariant: what ``opened`` returns was sealed by a task of ours. XComs can be added and changed by anybody who
may do so in Airflow, in its pages and over REST; the key is in a file that only the tasks' user can read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onceover.config.home import onceover_home
from onceover.errors import UsageError
from onceover.private import read_by_others
from onceover_airflow.codes import AirflowCode

# With an underscore: no flow can be called so, whose folder would be at the same place.
_KEY_FILE: Final = "approval_key"
# A place of its own, where ONCEOVER_HOME is shared with others: Spark's executors write receipts there.
KEY_VARIABLE: Final = "ONCEOVER_APPROVAL_KEY"
_KEY_BYTES: Final = 32
_TEXT, _SEAL = "text", "seal"


def sealed(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the value with its seal, as JSON can hold it.

    Raises:
        UsageError: the key cannot be read, or made, or is not this user's alone.
    """
    text = json.dumps(value, sort_keys=True)
    return {_TEXT: text, _SEAL: _seal_of(text)}


def opened(found: object) -> dict[str, Any]:
    """Return what ``sealed`` was given.

    Raises:
        UsageError: NOT_SEALED, somebody else has written it, or with another key; or as ``sealed``.
    """
    text, seal = (found.get(_TEXT), found.get(_SEAL)) if isinstance(found, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(seal, str):
        raise _not_ours()
    if not hmac.compare_digest(_seal_of(text).encode(), seal.encode()):
        raise _not_ours()
    value: dict[str, Any] = json.loads(text)
    return value


def _seal_of(text: str) -> str:
    return hmac.new(_key(), text.encode(), hashlib.sha256).hexdigest()


def _not_ours() -> UsageError:
    return UsageError(
        "what a task has left for this one was not written by it",
        code=AirflowCode.NOT_SEALED,
        where=str(_path()),
        expected="an answer that the asking task has sealed with this key",
        resolve="start the DAG again; tasks on several machines need the same file",
    )


def _path() -> Path:
    own = os.environ.get(KEY_VARIABLE)
    return Path(own) if own else onceover_home() / _KEY_FILE


def _key() -> bytes:
    path = _path()
    try:
        if not path.exists():
            _make(path)
        key = _read(path)
    except OSError as error:
        raise UsageError(
            f"the key of approvals cannot be read: {error.strerror}",
            code=AirflowCode.APPROVAL_KEY,
            where=str(path),
            expected=f"a file of this user: {KEY_VARIABLE}, or below ONCEOVER_HOME",
            resolve="let the user of Airflow's tasks read it",
        ) from error
    if len(key) != _KEY_BYTES:
        raise UsageError(
            "the key of approvals is damaged",
            code=AirflowCode.APPROVAL_KEY,
            where=str(path),
            expected=f"{_KEY_BYTES} bytes",
            resolve="remove it; questions that are open have to be put again",
        )
    return key


def _read(path: Path) -> bytes:
    """Return the key. What was looked at is what is read: both use one descriptor.

    Raises:
        UsageError: others can read or change it; what they seal is as good as ours.
    """
    with path.open("rb") as file:
        how = read_by_others(file.fileno())
        if how is not None:
            raise UsageError(
                "the key of approvals is not this user's alone: who reads it can approve anything",
                code=AirflowCode.APPROVAL_KEY,
                where=str(path),
                expected="mode 0600, and this user for its owner",
                seen=how,
                resolve="remove it: a new one is made, and open questions are to be put again; or, if nobody "
                f"can have read it: chmod 600 {path}",
            )
        # One byte more than there are tells that it is damaged.
        return file.read(_KEY_BYTES + 1)


def _make(path: Path) -> None:
    """Make the key; of several tasks that do so at once, one wins, and all read that one's."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mine = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(mine, path)
        except FileExistsError:
            return
    finally:
        mine.unlink()

"""What keeps a job to itself: with whom it talks, what it is not told, what nobody may press.

Invariant: a driver that holds credentials talks to nobody who cannot authenticate, and to another machine
only encrypted; the secret for that travels in the environment, and is in no argument, log or page (G10).
Whoever runs a flow's code, as a handler does, finds nothing of Airflow's in its environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, MutableMapping
from typing import Final

from onceover.errors import UsageError
from onceover.process.codes import ProcessCode

# What all of a standalone cluster share: its master, its workers, and whoever starts jobs there.
SECRET_VARIABLE: Final = "ONCEOVER_SPARK_SECRET"  # noqa: S105 - its name
# In its place the file that holds it, as engines of containers hand secrets over.
SECRET_FILE_VARIABLE: Final = "ONCEOVER_SPARK_SECRET_FILE"  # noqa: S105 - its name
# Where Spark's master and workers look for it; the workers give it on to executors in the same way.
SPARKS_VARIABLE: Final = "_SPARK_AUTH_SECRET"
# Shorter ones can be guessed from a single exchange that somebody has listened to.
_SHORTEST: Final = 16
# Of its file, in bytes: a device in its place has no end.
_LONGEST: Final = 4096
# Its settings, the secrets of its container image, its Variables, the key to a lineage catalogue; in
# capitals or not.
_AIRFLOWS: Final = re.compile(r"_+AIRFLOW_.*|AIRFLOW__.*|AIRFLOW_VAR_.*|OPENLINEAGE_.*", re.IGNORECASE)
# Each makes spark-submit, or the driver, a client of somebody else's Spark, which a job of ours is not for.
_SPARK_CONNECT: Final = re.compile(r"SPARK_(REMOTE|LOCAL_REMOTE|API_MODE|CONNECT_MODE_ENABLED)")
_CONNECTION: Final = re.compile(r"AIRFLOW_CONN_.*", re.IGNORECASE)


def protection(master: str) -> dict[str, str]:
    """Return the Spark options for a job on ``master``.

    Raises:
        UsageError: SPARK_SECRET, a standalone master, and no secret to talk to it.
    """
    # Spark's UI asks nobody who they are. Its other ports do; a local driver makes its own secret for that:
    # every user of the machine reaches loopback, and what comes in there is read as Java's objects.
    conf = {"spark.ui.killEnabled": "false", "spark.authenticate": "true"}
    if master.startswith("local"):
        return conf
    if _is_standalone(master):
        _secret(os.environ)
    return conf | {
        "spark.network.crypto.enabled": "true",
        # The second version: a secret that becomes known later opens nothing that was recorded before.
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        # Whoever offers less, or stands between, gets nothing.
        "spark.network.crypto.saslFallback": "false",
    }


def kept(environ: Mapping[str, str], master: str, connections: Collection[str]) -> dict[str, str]:
    """Return what a job on ``master`` is to find of ``environ``.

    Args:
        connections: variables of the Connections that its flow names; others' are left out.

    Raises:
        UsageError: as ``protection``.
    """
    found = stripped(environ, connections)
    return found | ({SECRET_VARIABLE: _secret(environ)} if _is_standalone(master) else {})


def stripped(environ: Mapping[str, str], connections: Collection[str]) -> dict[str, str]:
    """Return what a handler may find of ``environ``: nothing of Airflow's, nothing of others, no secret.

    Args:
        connections: as for ``kept``.
    """
    found = {
        name: value
        for name, value in environ.items()
        if not (_AIRFLOWS.fullmatch(name) or _SPARK_CONNECT.fullmatch(name))
        and (not _CONNECTION.fullmatch(name) or name in connections)
    }
    take_secret(found)
    return found


def take_secret(environ: MutableMapping[str, str] = os.environ) -> str | None:
    """Take the secret out of an environment, and return it: a handler has no use for it."""
    environ.pop(SPARKS_VARIABLE, None)
    environ.pop(SECRET_FILE_VARIABLE, None)
    return environ.pop(SECRET_VARIABLE, None)


def _is_standalone(master: str) -> bool:
    # YARN and Kubernetes make one for each application.
    return master.startswith("spark://")


def _secret(environ: Mapping[str, str]) -> str:
    path = environ.get(SECRET_FILE_VARIABLE)
    if path and SECRET_VARIABLE in environ:
        raise _without_secret(
            f"{SECRET_VARIABLE} and {SECRET_FILE_VARIABLE} are both set", "unset one of them"
        )
    secret = _written(path) if path else environ.get(SECRET_VARIABLE, "")
    if len(secret) < _SHORTEST or re.search(r"\s", secret):
        raise _without_secret(
            f"{path or SECRET_VARIABLE} holds none",
            f"set {SECRET_VARIABLE}, or name its file in {SECRET_FILE_VARIABLE}, where the job is started; "
            "or use master local",
        )
    return secret


def _written(path: str) -> str:
    """Return what a file holds, without the end of its line."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(_LONGEST + 1)
        if len(content) > _LONGEST:
            raise _without_secret(f"{path} is larger than any", f"correct {SECRET_FILE_VARIABLE}")
        return content.decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        seen = error.strerror if isinstance(error, OSError) else "not UTF-8"
    # Outside the handler: what cannot be decoded would be quoted, and be in this error's context.
    raise _without_secret(
        f"{path} cannot be read: {seen}", f"correct {SECRET_FILE_VARIABLE}, or the file's mode"
    )


def _without_secret(why: str, resolve: str) -> UsageError:
    return UsageError(
        f"a Spark master is talked to with a shared secret, and {why}",
        code=ProcessCode.SPARK_SECRET,
        expected=f"{_SHORTEST} characters or more, without blanks, as its master and workers have",
        resolve=resolve,
    )

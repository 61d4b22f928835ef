"""Airflow Connections of type ``kafka`` and ``http`` from the environment, without importing Airflow.

Airflow itself looks for ``AIRFLOW_CONN_<ID>`` first, in JSON or URI form; the DAG hands the
Connections it resolved to the job in the same variables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from onceover.config.faults import Invalid

_EXAMPLE: Final = '{"conn_type": "kafka", "extra": {"bootstrap.servers": "host:9092"}}'
_EXTRA_FIX: Final = f"write {_EXAMPLE}"
_HTTP_EXAMPLE: Final = '{"conn_type": "http", "login": "user", "password": "..."}'
_HTTP_FIX: Final = f"write {_HTTP_EXAMPLE}"
_HTTP_TYPES: Final = ("http", "https")
# The Kafka provider reads nothing but ``extra``: a host or password elsewhere would be ignored.
_IGNORED: Final = ("host", "login", "password", "schema", "port")


class NotGiven(Invalid):
    """The process has no such Connection: where Airflow starts it, it gets one."""


def variable_of(connection_id: str) -> str:
    """Return the environment variable in which Airflow looks for the Connection."""
    return f"AIRFLOW_CONN_{connection_id.upper()}"


def _setting(name: str, value: str) -> str:
    """Say how a shell sets it: an id with a hyphen or a dot makes a name that none can export."""
    if name.isidentifier():
        return f"export {name}='{value}'"
    return f"write env '{name}={value}' in front of the command"


def read_connection(connection_id: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the client keys in the Connection's ``extra``.

    Raises:
        Invalid: the variable is not set, is neither JSON nor a URI, is of another type, or keeps
            something outside ``extra``. The message names the variable, never a value.
    """
    name = variable_of(connection_id)
    fields = _fields(connection_id, environ, "kafka", _EXAMPLE)
    if str(fields.get("conn_type", "")).lower() != "kafka":
        raise Invalid(f"{name} is not a Connection of type kafka", _EXTRA_FIX)
    ignored = [field for field in _IGNORED if fields.get(field)]
    if ignored:
        raise Invalid(
            f"{name} has {', '.join(ignored)} outside extra, which a kafka Connection does not use",
            _EXTRA_FIX,
        )
    return _extra(fields.get("extra"), name)


def read_http_connection(connection_id: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return user and password of a Connection of type ``http`` or ``https``.

    Where the server is stands in the configuration file; the Connection's host is not looked at.

    Raises:
        Invalid: the variable is not set, is neither JSON nor a URI, is of another type, or lacks one.
    """
    name = variable_of(connection_id)
    fields = _fields(connection_id, environ, "http", _HTTP_EXAMPLE)
    if str(fields.get("conn_type", "")).lower() not in _HTTP_TYPES:
        raise Invalid(f"{name} is not a Connection of type http", _HTTP_FIX)
    login, password = fields.get("login"), fields.get("password")
    if not login or not password:
        raise Invalid(f"{name} has no login or no password", _HTTP_FIX)
    return str(login), str(password)


def _fields(connection_id: str, environ: Mapping[str, str], kind: str, example: str) -> dict[str, Any]:
    name = variable_of(connection_id)
    text = environ.get(name, "").strip()
    if not text:
        started = "start the flow from its DAG, or use client_file" if kind == "kafka" else "start the DAG"
        raise NotGiven(
            f"the environment variable {name} is not set, so the Connection cannot be read",
            f"{_setting(name, example)} (what is stored in Airflow shows: airflow connections get "
            f"{connection_id} -o json), or {started}",
        )
    read = _from_json if text.startswith("{") else _from_uri
    return read(text, name, f"write {example}")


def _from_json(text: str, name: str, fix: str) -> dict[str, Any]:
    fields = _loads(text)
    if not isinstance(fields, dict):
        raise Invalid(f"{name} is not valid JSON", fix)
    return fields


def _from_uri(text: str, name: str, fix: str) -> dict[str, Any]:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise Invalid(f"{name} is neither JSON nor a URI", fix) from None
    if not parts.scheme:
        raise Invalid(f"{name} is neither JSON nor a URI", fix)
    query: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "conn_type": parts.scheme,
        "host": parts.hostname,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "port": port,
        "schema": parts.path.strip("/"),
        "extra": query.get("__extra__", query),
    }


def _extra(extra: object, name: str) -> dict[str, Any]:
    fields = _loads(extra) if isinstance(extra, str) else extra
    if not isinstance(fields, dict) or not fields:
        raise Invalid(f"{name} has no client keys in extra", _EXTRA_FIX)
    return fields


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None

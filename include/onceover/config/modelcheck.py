"""Checks that every configuration file of ours shares: closed models, ``${NAME}``, client keys. Pure.

Each check runs on its own, so that one fault never hides another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

from onceover.advice import nearest_fix
from onceover.config.clients.rules import KeyFault, check_properties, literal_secrets
from onceover.config.document import Document, substitute, substitute_each
from onceover.config.faults import Fault, Invalid, shown_key

Key = tuple[str, ...]

WAYS: Final = ("client", "connection", "client_file")


class ModelCheck:
    """Collects the faults of one document.

    Args:
        document: the file as read.
        path: where it is, for messages and for paths that are relative to it.
        environ: what ``${NAME}`` reads.
        model: the closed model of the file's keys.
        examples: what to write, by key, where a required key is missing.

    Attributes:
        faults: what was found so far, one for each key.
    """

    def __init__(
        self,
        document: Document,
        path: Path,
        environ: Mapping[str, str],
        model: type[BaseModel],
        examples: Mapping[Key, str],
    ) -> None:
        self.path = path
        self.environ = environ
        self.faults: list[Fault] = []
        self._document = document
        self._model = model
        self._examples = examples
        self._keys: set[Key] = set()

    def is_hidden(self, key: Key) -> bool:
        """Tell whether a message may not repeat the value of ``key``, because it may be a secret."""
        raise NotImplementedError

    def add(self, key: Key, problem: str, fix: str) -> None:
        """Keep one fault per key: the first is the cause, what follows from it would only confuse."""
        if any(key[: len(known)] == known for known in self._keys):
            return
        self._keys.add(key)
        line = self._document.line_of(key)
        self.faults.append(Fault(str(self.path), ".".join(map(shown_key, key)), problem, fix, line))

    def substituted(self, keep: Callable[[Key], bool]) -> dict[str, Any]:
        """Return the document with every ``${NAME}`` replaced, except below the keys to ``keep``."""
        data, failures = substitute_each(self._document.data, self.environ, keep=keep)
        for key, invalid in failures:
            self.add(key, invalid.problem, invalid.fix)
        return data

    def absolute(self, data: dict[str, Any], key: Key) -> dict[str, Any]:
        """Return ``data`` with the path at ``key`` relative to the file, not to where we run."""
        head, rest = key[0], key[1:]
        value = data.get(head)
        if rest:
            return {**data, head: self.absolute(value, rest)} if isinstance(value, dict) else data
        if isinstance(value, str) and value.strip():
            return {**data, head: str(self.path.parent / value)}
        return data

    def check_model(self, data: dict[str, Any]) -> None:
        """Add what the model says about keys and values."""
        try:
            self._model.model_validate(data)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
        else:
            return
        for detail in details:
            key = tuple(str(part) for part in detail["loc"])
            self.add(key, *self._explain(detail["type"], key, detail.get("ctx", {}).get("error")))

    def check_client(self, key: Key, spec: object) -> dict[str, str]:
        """Check how one cluster is reached; return its inline client keys as far as they are in order."""
        if not isinstance(spec, dict):
            return {}
        given = [way for way in WAYS if spec.get(way) is not None]
        ways = {(*key, way) for way in WAYS}
        if len(given) != 1 and not any(known[: len(key) + 1] in ways for known in self._keys):
            seen = " and ".join(given) if given else "none"
            self.add(
                (*key, given[-1]) if given else key,
                f"exactly one of {', '.join(WAYS)} is needed, seen {seen}",
                "remove the others" if given else "add one, e.g. client: {bootstrap.servers: ...}",
            )
        client = spec.get("client")
        return self._properties((*key, "client"), client) if isinstance(client, dict) else {}

    def _properties(self, key: Key, client: dict[str, Any]) -> dict[str, str]:
        def add(fault: KeyFault) -> None:
            self.add((*key, fault.key), fault.problem, fault.fix)

        for fault in literal_secrets(client):
            add(fault)
        resolved: dict[str, Any] = {}
        for name, value in client.items():
            try:
                resolved[name] = substitute(value, self.environ)
            except Invalid as error:
                add(KeyFault(name, error.problem, error.fix))
        # A key whose variable is unset is named all the same: it must not be reported as missing.
        checked, faults = check_properties({**client, **resolved})
        for fault in faults:
            add(fault)
        return checked

    def _explain(self, kind: str, key: Key, cause: object) -> tuple[str, str]:
        if isinstance(cause, Invalid):
            return f"{cause.problem}{self._seen(key)}", cause.fix
        if kind == "extra_forbidden":
            return "unknown key", nearest_fix(key[-1], _keys_beside(self._model, key))
        if kind == "missing":
            return "is required", f"e.g. {self._examples.get(key, key[-1])}"
        return (
            f"expected keys with values{self._seen(key)}",
            "write {key: value}, or indented lines of key: value",
        )

    def _seen(self, key: Key) -> str:
        """Return what the file says, never what the environment put into it."""
        value: Any = self._document.data
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        if self.is_hidden(key):
            return ""
        simple = isinstance(value, str | int | float) or value is None
        return f", seen {_short(value)}" if simple else ""


def _short(value: object) -> str:
    shown = "null" if value is None else str(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _keys_beside(model: type[BaseModel], key: Key) -> Iterator[str]:
    """Yield the valid keys at the level of ``key``."""
    parts = iter(key[:-1])
    for part in parts:
        field = next(f for name, f in model.model_fields.items() if (f.alias or name) == part)
        kinds = [field.annotation, *get_args(field.annotation)]
        if get_origin(field.annotation) is dict:
            next(parts, None)  # a name that the user gives
        model = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
    for name, field in model.model_fields.items():
        yield field.alias or name

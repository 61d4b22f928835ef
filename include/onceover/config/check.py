"""Everything that can be wrong in a flow file, as faults that name the key and the fix. Pure.

Each check runs on its own, so that one fault never hides another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from onceover.config import values
from onceover.config.clients import same_cluster_fault
from onceover.config.document import Document, substitute, substitute_each
from onceover.config.faults import Fault, Invalid, nearest_fix, shown_key
from onceover.config.flowfile import FlowKeys, TopicsSpec, slots_of
from onceover.config.rules import KeyFault, check_properties, literal_secrets

Key = tuple[str, ...]

SIDES: Final = ("source", "target")
_WAYS: Final = ("client", "connection", "client_file")
# Values below these keys may be secrets, or misplaced ones: they are never repeated in a message.
_NEVER_SHOWN: Final = (*SIDES, "handler_args")
_EXAMPLES: Final = {
    ("flow",): "flow: orders-dr",
    ("source",): 'source: {alias: east, client: {bootstrap.servers: "${EAST}"}}',
    ("target",): 'target: {alias: west, client: {bootstrap.servers: "${WEST}"}}',
    ("topics",): 'topics: {include: ["orders.*"]}',
    ("topics", "include"): 'include: ["orders.*"]',
    ("source", "alias"): "alias: east",
    ("target", "alias"): "alias: west",
}


def check_document(
    document: Document, path: Path, environ: Mapping[str, str]
) -> tuple[dict[str, Any], list[Fault]]:
    """Return the keys with ``${NAME}`` replaced, ready for the model, and all faults.

    ``client`` and ``handler_args`` keep their references; that those can be resolved is checked.
    """
    return _Check(document, path, environ).run()


class _Check:
    def __init__(self, document: Document, path: Path, environ: Mapping[str, str]) -> None:
        self._document = document
        self._path = path
        self._environ = environ
        self._faults: list[Fault] = []
        self._keys: set[Key] = set()

    def run(self) -> tuple[dict[str, Any], list[Fault]]:
        data, failures = substitute_each(self._document.data, self._environ, keep=_kept)
        for key, invalid in failures:
            self._add(key, invalid.problem, invalid.fix)
        data = self._absolute(data)
        self._model(data)
        servers = [self._side(side, data.get(side)) for side in SIDES]
        self._pair(data, servers)
        self._handler_args(data)
        self._dead_letter(data)
        self._slots(data)
        return data, self._faults

    def _add(self, key: Key, problem: str, fix: str) -> None:
        """Keep one fault per key: the first is the cause, what follows from it would only confuse."""
        if any(key[: len(known)] == known for known in self._keys):
            return
        self._keys.add(key)
        line = self._document.line_of(key)
        self._faults.append(Fault(str(self._path), ".".join(map(shown_key, key)), problem, fix, line))

    def _absolute(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return ``data`` with client files relative to the flow file, not to where we run."""
        result = dict(data)
        for side in SIDES:
            spec = data.get(side)
            if (
                isinstance(spec, dict)
                and isinstance(spec.get("client_file"), str)
                and spec["client_file"].strip()
            ):
                result[side] = {**spec, "client_file": str(self._path.parent / spec["client_file"])}
        return result

    def _model(self, data: dict[str, Any]) -> None:
        try:
            FlowKeys.model_validate(data)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
        else:
            return
        for detail in details:
            key = tuple(str(part) for part in detail["loc"])
            self._add(key, *self._explain(detail["type"], key, detail.get("ctx", {}).get("error")))

    def _explain(self, kind: str, key: Key, cause: object) -> tuple[str, str]:
        if isinstance(cause, Invalid):
            return f"{cause.problem}{self._seen(key)}", cause.fix
        if kind == "extra_forbidden":
            return "unknown key", nearest_fix(key[-1], _keys_beside(key))
        if kind == "missing":
            return "is required", f"e.g. {_EXAMPLES.get(key, key[-1])}"
        return (
            f"expected keys with values{self._seen(key)}",
            "write {key: value}, or indented lines of key: value",
        )

    def _seen(self, key: Key) -> str:
        """Return what the file says, never what the environment put into it."""
        value: Any = self._document.data
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        if key[0] in _NEVER_SHOWN and key[-1] != "alias":
            return ""
        simple = isinstance(value, str | int | float) or value is None
        return f", seen {_short(value)}" if simple else ""

    def _side(self, side: str, spec: object) -> dict[str, str]:
        """Check how one cluster is reached; return its inline client keys as far as they are in order."""
        if not isinstance(spec, dict):
            return {}
        given = [way for way in _WAYS if spec.get(way) is not None]
        if len(given) != 1 and not any(known[:2] in {(side, way) for way in _WAYS} for known in self._keys):
            seen = " and ".join(given) if given else "none"
            self._add(
                (side, given[-1]) if given else (side,),
                f"exactly one of {', '.join(_WAYS)} is needed, seen {seen}",
                "remove the others" if given else "add one, e.g. client: {bootstrap.servers: ...}",
            )
        client = spec.get("client")
        return self._client(side, client) if isinstance(client, dict) else {}

    def _client(self, side: str, client: dict[str, Any]) -> dict[str, str]:
        for fault in literal_secrets(client):
            self._add_client(side, fault)
        resolved: dict[str, Any] = {}
        for key, value in client.items():
            try:
                resolved[key] = substitute(value, self._environ)
            except Invalid as error:
                self._add_client(side, KeyFault(key, error.problem, error.fix))
        # A key whose variable is unset is named all the same: it must not be reported as missing.
        checked, faults = check_properties({**client, **resolved})
        for fault in faults:
            self._add_client(side, fault)
        return checked

    def _add_client(self, side: str, fault: KeyFault) -> None:
        self._add((side, "client", fault.key), fault.problem, fault.fix)

    def _pair(self, data: dict[str, Any], servers: list[dict[str, str]]) -> None:
        if all("bootstrap.servers" in checked for checked in servers):
            fault = same_cluster_fault(str(self._path), *servers)
            if fault is not None:
                self._add(("target", "client", "bootstrap.servers"), fault.problem, fault.fix)
        source, target = (_get(data, side, "alias") for side in SIDES)
        if source is not None and source == target:
            self._add(("target", "alias"), "is the source's alias, too", "give the clusters different names")

    def _handler_args(self, data: dict[str, Any]) -> None:
        if data.get("handler_args") and data.get("handler") is None:
            self._add(("handler_args",), "is given without a handler", "remove it, or name a handler")
        for key, value in _items(data.get("handler_args")):
            try:
                json.dumps(substitute(value, self._environ))
            except Invalid as error:
                self._add(("handler_args", key), error.problem, error.fix)
            except TypeError:
                # YAML makes dates of some texts; arguments travel to the workers as JSON.
                self._add(
                    ("handler_args", key), "holds a value that JSON does not know", "write it in quotes"
                )

    def _dead_letter(self, data: dict[str, Any]) -> None:
        """Refuse a dead-letter topic that the flow itself writes: its records would be taken for copies."""
        kind, _, topic = str(data.get("on_bad_record")).partition(":")
        spec = data.get("topics")
        if kind != "dead_letter" or not isinstance(spec, dict):
            return
        if topic.startswith("__"):
            fix = "choose a name that does not begin with two underscores"
            self._add(("on_bad_record",), "names an internal topic", fix)
            return
        prefix = f"{_get(data, 'source', 'alias')}." if spec.get("naming") == "prefix" else ""
        try:
            topics = TopicsSpec.model_validate(spec)
        except ValidationError:
            return
        name = topic.removeprefix(prefix)
        copied = any(re.fullmatch(e, name) for e in topics.include)
        left_out = any(re.fullmatch(e, name) for e in topics.exclude)
        if topic.startswith(prefix) and copied and not left_out:
            fix = "exclude it in topics.exclude, or choose another name"
            self._add(("on_bad_record",), f"{topic} is a topic that the flow itself copies to", fix)

    def _slots(self, data: dict[str, Any]) -> None:
        """Refuse lanes that Spark could never run at once: a lane without a slot copies nothing."""
        lanes, master = (
            data.get("lanes", FlowKeys.model_fields["lanes"].default),
            _get(data, "spark", "master"),
        )
        slots = slots_of(master) if isinstance(master, str) else None
        try:
            wanted = values.whole(1, 64)(lanes)
        except Invalid:
            return
        if slots is not None and slots < wanted:
            self._add(
                ("spark", "master"),
                f"has {slots} slots, the flow {wanted} lanes, and every lane needs one",
                'write "local", which makes enough slots, or lower lanes',
            )


def _kept(key: Key) -> bool:
    return key == ("handler_args",) or (len(key) == 2 and key[0] in SIDES and key[1] == "client")


def _get(data: dict[str, Any], section: str, key: str) -> Any:
    values_of = data.get(section)
    return values_of.get(key) if isinstance(values_of, dict) else None


def _items(value: object) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _short(value: object) -> str:
    shown = "null" if value is None else str(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _keys_beside(key: Key) -> Iterator[str]:
    """Yield the valid keys at the level of ``key``."""
    model: type[BaseModel] = FlowKeys
    for part in key[:-1]:
        field = next(f for name, f in model.model_fields.items() if (f.alias or name) == part)
        kinds = [field.annotation, *get_args(field.annotation)]
        model = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
    for name, field in model.model_fields.items():
        yield field.alias or name

"""Everything that can be wrong in a flow file, as faults that name the key and the fix. Pure.

Each check runs on its own, so that one fault never hides another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from onceover.config import values
from onceover.config.document import Document, substitute
from onceover.config.faults import Fault, Invalid
from onceover.config.flow.flowfile import FlowKeys, TopicsSpec, canary_topic_of, slots_of
from onceover.config.flow.sides import same_cluster_fault
from onceover.config.modelcheck import Key, ModelCheck
from onceover.model import MOST_LANES

SIDES: Final = ("source", "target")
# Values below these keys may be secrets, or misplaced ones: they are never repeated in a message.
_NEVER_SHOWN: Final = (*SIDES, "handler_args")
_EXAMPLES: Final[Mapping[Key, str]] = {
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


class _Check(ModelCheck):
    def __init__(self, document: Document, path: Path, environ: Mapping[str, str]) -> None:
        super().__init__(document, path, environ, FlowKeys, _EXAMPLES)

    def run(self) -> tuple[dict[str, Any], list[Fault]]:
        data = self.substituted(_kept)
        for side in SIDES:
            data = self.absolute(data, (side, "client_file"))
        self.check_model(data)
        servers = [self.check_client((side,), data.get(side)) for side in SIDES]
        self._pair(data, servers)
        self._handler_args(data)
        self._dead_letter(data)
        self._slots(data)
        self._switchover(data)
        self._canary(data)
        return data, self.faults

    def is_hidden(self, key: Key) -> bool:
        """Values below these keys may be secrets, or misplaced ones."""
        return key[0] in _NEVER_SHOWN and key[-1] != "alias"

    def _pair(self, data: dict[str, Any], servers: list[dict[str, str]]) -> None:
        if all("bootstrap.servers" in checked for checked in servers):
            fault = same_cluster_fault(str(self.path), *servers)
            if fault is not None:
                self.add(("target", "client", "bootstrap.servers"), fault.problem, fault.fix)
        source, target = (_get(data, side, "alias") for side in SIDES)
        if source is not None and source == target:
            self.add(("target", "alias"), "is the source's alias, too", "give the clusters different names")

    def _handler_args(self, data: dict[str, Any]) -> None:
        if data.get("handler_args") and data.get("handler") is None:
            self.add(("handler_args",), "is given without a handler", "remove it, or name a handler")
        for key, value in _items(data.get("handler_args")):
            try:
                json.dumps(substitute(value, self.environ))
            except Invalid as error:
                self.add(("handler_args", key), error.problem, error.fix)
            except TypeError:
                # YAML makes dates of some texts; arguments travel to the workers as JSON.
                self.add(("handler_args", key), "holds a value that JSON does not know", "write it in quotes")

    def _dead_letter(self, data: dict[str, Any]) -> None:
        """Refuse a dead-letter topic that the flow itself writes: its records would be taken for copies."""
        kind, _, topic = str(data.get("on_bad_record")).partition(":")
        spec = data.get("topics")
        if kind != "dead_letter" or not isinstance(spec, dict):
            return
        if topic.startswith("__"):
            fix = "choose a name that does not begin with two underscores"
            self.add(("on_bad_record",), "names an internal topic", fix)
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
            key = ("on_bad_record",)
            self.add(key, f"names a topic that the flow itself copies to{self._seen(key)}", fix)

    def _switchover(self, data: dict[str, Any]) -> None:
        """Refuse a step that is to be done by a command that nobody has named, and a flow back to itself."""
        uses = [key for key in ("fence", "redirect") if _get(data, "switchover", key) == "command"]
        if uses and not _get(data, "switchover", "command"):
            fix = 'name a program and its arguments, such as ["./switch"]'
            self.add(("switchover", uses[0]), "is command, and switchover.command is empty", fix)
        reverse = _get(data, "switchover", "reverse")
        if reverse is not None and reverse == data.get("flow"):
            self.add(("switchover", "reverse"), "is this very flow", "name the flow in the other direction")

    def _canary(self, data: dict[str, Any]) -> None:
        """Refuse a canary that the flow does not copy: it would look as if all of it was lost."""
        if _get(data, "canary", "interval") is None or not isinstance(data.get("topics"), dict):
            return
        try:
            topics = TopicsSpec.model_validate(data["topics"])
        except ValidationError:
            return
        key = ("canary", "topic")
        topic = _get(data, *key)
        seen = self._seen(key) if topic else ""
        topic = topic or canary_topic_of(str(data.get("flow")))
        if isinstance(topic, str) and (topic.startswith("__") or not topics.selects(topic)):
            fix = "name it in topics.include, and let topics.exclude not match it"
            self.add(key, f"is no topic that the flow copies{seen or f', {topic}'}", fix)

    def _slots(self, data: dict[str, Any]) -> None:
        """Refuse lanes that Spark could never run at once: a lane without a slot copies nothing."""
        lanes, master = (
            data.get("lanes", FlowKeys.model_fields["lanes"].default),
            _get(data, "spark", "master"),
        )
        slots = slots_of(master) if isinstance(master, str) else None
        try:
            wanted = values.whole(1, MOST_LANES)(lanes)
        except Invalid:
            return
        if slots is not None and slots < wanted:
            self.add(
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

"""MirrorMaker 2 properties (dedicated mode) as flow files. Pure.

Every setting of the file is either in a flow file or listed with the reason why it is not. Nothing
is guessed, and no value that may be secret is repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from onceover.config.clients.keys import ALLOWED, refusal_of
from onceover.config.faults import BadConfig, Fault, Invalid, shown_key
from onceover.config.mirrormaker.mm2_security import (
    PROTOCOL,
    SECRET_WORD,
    ClientTranslation,
    reason_for,
    still_missing,
    translate_client,
)
from onceover.config.mirrormaker.mm2_settings import (
    FLOW_SETTINGS,
    LEFT_OUT,
    LEFT_OUT_NOTE,
    NO_COUNTERPART,
    Setting,
    ToldTo,
)
from onceover.config.properties import parse_properties

_ARROW: Final = "->"
# As `topics.naming: prefix` has it, and MirrorMaker unless it is told another.
_SEPARATOR: Final = "."
_CONSUMER: Final = "consumer."
_PRODUCER: Final = "producer."
_ROLES: Final = (_CONSUMER, _PRODUCER, "admin.")
_CLIENT_FAMILIES: Final = ("security.", "sasl.", "ssl.", "bootstrap.")
# Of one pair of clusters: where MirrorMaker (4.3) looks for what is told to its clients alone.
_OF_ONE_PAIR: Final = re.compile(
    r"(?:(?:source|target)\.)?(?:cluster|consumer|producer|admin)\.(?:override\.)?"
    r"(?:security|sasl|ssl|bootstrap)\..*"
)
_ELSEWHERE: Final = "belongs to no enabled pair, or stands where MirrorMaker 2 does not look for it"
_UNKNOWN: Final = "is not a setting of MirrorMaker 2 that Onceover knows"
_HARMLESS: Final = re.compile(r"true|false|[0-9]{1,12}", re.IGNORECASE)


class NoCounterpart(NamedTuple):
    """A setting that is in no flow file; ``value`` is shown only when it cannot be a secret."""

    key: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportedFlow:
    """One flow file: its name (also the file's stem) and its YAML text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Mm2Import:
    """What a MirrorMaker 2 file becomes, what it does not, and what is left to do by hand."""

    flows: tuple[ImportedFlow, ...]
    no_counterpart: tuple[NoCounterpart, ...]
    notes: tuple[str, ...]


def import_mm2(text: str, origin: Path) -> Mm2Import:
    """Translate the properties ``text`` read from ``origin`` (named in messages only).

    Raises:
        UsageError: not a properties file, no ``clusters``, or no enabled ``A->B`` pair.
    """
    return _Importer(_read(text, origin), origin).run()


def _read(text: str, origin: Path) -> dict[str, str]:
    try:
        entries = parse_properties(text)
    except Invalid as error:
        fault = Fault(str(origin), "", error.problem, error.fix)
    else:
        # The last of several wins, as in java.util.Properties.
        return {entry.key: entry.value.strip() for entry in entries}
    raise BadConfig([fault])


def _alias(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def _flow_name(source: str, target: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{source}-to-{target}".lower()).strip("-")


class _Importer:
    def __init__(self, properties: dict[str, str], origin: Path) -> None:
        self._properties = properties
        self._origin = origin
        self._used: set[str] = set()
        self._left: dict[str, str] = {}
        self._notes: list[str] = []
        self._aliases: list[str] = []
        self._kept_names: list[tuple[str, str]] = []
        self._pairs_named: dict[str, str] = {}
        # Of keys of one client: those that were taken, and of others by which key another value was.
        self._taken: set[str] = set()
        self._instead: dict[str, str] = {}

    def run(self) -> Mm2Import:
        self._aliases = self._clusters()
        pairs = self._pairs()
        sides = {(source, _CONSUMER) for source, _ in pairs} | {(target, _PRODUCER) for _, target in pairs}
        clients = {side: self._client(*side) for side in sorted(sides)}
        for key in self._instead.keys() - self._taken:
            self._left[key] = f"is told to one of its clients: {self._instead[key]} is taken for all of them"
        self._check_apart(pairs)
        self._pairs_named = {f"{s}{_ARROW}{t}.": _flow_name(s, t) for s, t in pairs}
        flows = tuple(self._flow(source, target, clients) for source, target in pairs)
        for key in self._properties:
            if key not in self._used:
                self._left.setdefault(key, self._reason(key))
        if any((target, source) in pairs for source, target in self._kept_names):
            self._notes.append(
                "both directions of a pair are enabled, and copies are not all renamed: start one of the two "
                "flows, or set naming: prefix in both (docs/topics.md)"
            )
        left = (
            NoCounterpart(self._named(key), self._shown(key), self._left[key]) for key in sorted(self._left)
        )
        return Mm2Import(flows, tuple(dict.fromkeys(left)), tuple(dict.fromkeys(self._notes)))

    def _fail(self, key: str, problem: str, fix: str) -> BadConfig:
        return BadConfig([Fault(str(self._origin), key, problem, fix)])

    def _clusters(self) -> list[str]:
        self._used.add("clusters")
        named = (name.strip() for name in self._properties.get("clusters", "").split(","))
        # Named twice it is one, as MirrorMaker takes it.
        aliases = list(dict.fromkeys(name for name in named if name))
        if len(aliases) < 2:
            fix = "write clusters = east, west, as in dedicated mode; a connector's own file is not read"
            raise self._fail("clusters", "names fewer than two clusters", fix)
        return aliases

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = []
        for source in self._aliases:
            for target in self._aliases:
                key = f"{source}{_ARROW}{target}.enabled"
                enabled = self._properties.get(key, "false").lower() == "true"
                self._used |= {key} if key in self._properties else set()
                if enabled and source != target:
                    pairs.append((source, target))
                elif key in self._properties:
                    self._left[key] = "not enabled, so no flow file is made of it"
        if not pairs:
            example = f"{self._aliases[0]}->{self._aliases[1]}.enabled = true"
            raise self._fail("", "no pair of clusters is enabled", f"write {example}")
        return pairs

    def _check_apart(self, pairs: list[tuple[str, str]]) -> None:
        """Refuse pairs whose flows would have one name: one of them would be lost."""
        named: dict[str, tuple[str, str]] = {}
        for pair in pairs:
            other = named.setdefault(_flow_name(*pair), pair)
            if other != pair:
                arrows = f"{_ARROW.join(other)} and {_ARROW.join(pair)}"
                raise self._fail(
                    "clusters",
                    f"{arrows} would be one flow, {_flow_name(*pair)}",
                    "import each alone, the other one disabled, and rename the first file and its flow",
                )

    def _client(self, alias: str, copies: str) -> ClientTranslation:
        """Collect the client settings of a cluster; its own win over those of all clusters.

        Args:
            copies: of its clients, the one that reads or writes the records: what it is told wins.
        """
        java, origin = self._told(alias, copies)
        if PROTOCOL in java:
            self._check_protocol(origin[PROTOCOL], java[PROTOCOL])
        result = translate_client(alias, java)
        for name, reason in result.dropped:
            self._left[origin.get(name, f"{alias}.{name}")] = reason
        for variable, key in result.variables.items():
            self._notes.append(f"set the environment variable {variable} to the {key} of cluster {alias}")
        for missing in still_missing(result.client):
            self._notes.append(f"cluster {alias}: {missing}")
        return result

    def _told(self, alias: str, copies: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the Java settings of a cluster's clients as of one, and the key of each in the file."""
        java: dict[str, str] = {}
        origin: dict[str, str] = {}
        roles = ("", *sorted(_ROLES, key=lambda role: role == copies))
        for scope in ("", f"{alias}."):
            beside: dict[str, list[str]] = {}
            for prefix in (f"{scope}{role}" for role in roles):
                for key, value in self._properties.items():
                    name = key.removeprefix(prefix)
                    if key.startswith(prefix) and name.startswith(_CLIENT_FAMILIES):
                        java[name], origin[name] = value, key
                        beside.setdefault(name, []).append(key)
                        self._used.add(key)
            for name, keys in beside.items():
                others = (key for key in keys if self._properties[key] != java[name])
                self._instead |= dict.fromkeys(others, origin[name])
        self._taken |= set(origin.values())
        return java, origin

    def _check_protocol(self, key: str, value: str) -> None:
        """Refuse an unknown protocol: in a flow file without one, a client goes unprotected."""
        if "${" not in value:
            try:
                ALLOWED[PROTOCOL].check(value)
            except Invalid as error:
                raise self._fail(key, error.problem, error.fix) from error

    def _flow(
        self, source: str, target: str, clients: dict[tuple[str, str], ClientTranslation]
    ) -> ImportedFlow:
        name = _flow_name(source, target)
        flow: dict[str, Any] = {"flow": name}
        for side, alias, copies in (("source", source, _CONSUMER), ("target", target, _PRODUCER)):
            flow[side] = {"alias": _alias(alias), "client": clients[alias, copies].client}
        flow["topics"] = {"include": [".*"], "naming": "prefix"}
        for key, setting in FLOW_SETTINGS.items():
            self._setting(flow, source, target, key, setting)
        if "exclude" not in flow["topics"]:
            flow["topics"]["exclude"] = list(LEFT_OUT)
            self._notes.append(f"{name}: {LEFT_OUT_NOTE}")
        if flow["topics"]["naming"] == "prefix":
            self._notes.append(f"{name}: {self._names_of_copies(source, target)}")
        else:
            self._kept_names.append((source, target))
        self._notes += [
            f"{name}: MirrorMaker 2 writes {kind} unless it is told not to; where programs read them, set "
            f"mirrormaker.{kind}"
            for kind in ("checkpoints", "heartbeats")
            if kind not in flow.get("mirrormaker", {})
        ]
        header = (
            f"# Made from {self._origin.name} by `flow import`.\n"
            f"# Check it with: onceover flow check {name}\n"
        )
        return ImportedFlow(
            name, header + yaml.safe_dump(flow, sort_keys=False, width=100, allow_unicode=True)
        )

    def _names_of_copies(self, source: str, target: str) -> str:
        """Return what MirrorMaker's default policy and ``naming: prefix`` make of a topic's name."""
        keys = ToldTo.CONNECTOR.keys("replication.policy.separator", source, target)
        separator = next((self._properties[key] for key in keys if key in self._properties), _SEPARATOR)
        theirs, ours = f"{source}{separator}<topic>", f"{_alias(source)}{_SEPARATOR}<topic>"
        if theirs == ours:
            return f"MirrorMaker 2 names topics {ours} (its default policy), so the file says naming: prefix"
        return (
            f"MirrorMaker 2 names topics {theirs}, and no flow file can call one so: copies are called "
            f"{ours}, beside MirrorMaker's, and from the beginning"
        )

    def _setting(self, flow: dict[str, Any], source: str, target: str, key: str, setting: Setting) -> None:
        """Put that value of ``key`` into ``flow`` which MirrorMaker would take."""
        present = [each for each in setting.told_to.keys(key, source, target) if each in self._properties]
        self._used.update(present)
        if not present:
            return
        value = self._properties[present[0]]
        try:
            written = setting.convert(value)
        except Invalid as error:
            self._left[present[0]] = f"{error.problem}; {error.fix}"
            if setting.as_it_is is None:
                return
            written = setting.as_it_is(value)
        *sections, last = setting.path
        place = flow
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = written

    def _reason(self, key: str) -> str:
        pair = next((each for each in self._pairs_named if key.startswith(each)), "")
        if pair and _OF_ONE_PAIR.fullmatch(key.removeprefix(pair)):
            return (
                "holds for this pair alone, and is not taken over: write it into source.client or "
                f"target.client of {self._pairs_named[pair]}"
            )
        bare = self._bare(key)
        reason = next((why for pattern, why in NO_COUNTERPART if re.fullmatch(pattern, bare)), None)
        if reason:
            return reason
        if bare in FLOW_SETTINGS or (key != bare and bare.startswith(_CLIENT_FAMILIES)):
            return _ELSEWHERE
        if refused := refusal_of(bare):
            return refused[0]
        if any(f".{role}" in f".{key}" for role in _ROLES):
            return reason_for(bare)
        return _UNKNOWN

    def _bare(self, key: str) -> str:
        """Return ``key`` without the prefixes of cluster, pair and client role."""
        prefixes = [f"{a}{_ARROW}{b}." for a in self._aliases for b in self._aliases]
        prefixes += [f"{alias}." for alias in self._aliases]
        for prefix in (*prefixes, "source.", "target.", "cluster.", "override.", *_ROLES):
            if key.startswith(prefix):
                return self._bare(key.removeprefix(prefix))
        return key

    def _named(self, key: str) -> str:
        """Return ``key`` for people, unless it may be a line of a value, such as of a private key."""
        return shown_key(key) if "." in key or self._left[key] != _UNKNOWN else "…"

    def _shown(self, key: str) -> str:
        value = self._properties.get(key, "")
        harmless = _HARMLESS.fullmatch(value) or self._bare(key) in FLOW_SETTINGS
        return value if harmless and not SECRET_WORD.search(key) else "(not shown)"

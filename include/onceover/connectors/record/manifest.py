"""What a run found and did, kept beside the journal: the raw offsets, where they were, what is still to do.

Invariant: a manifest is on disk, whole, before anything depends on it, and an older one is kept under the
time of its run. It holds no configuration, which may hold secrets, but a salted hash of it: the old one is
the present one with the former topic. It is a hint (G4): a run that finds none, neither here nor on the
cluster (``runrecords``), begins anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

from onceover.clock import now_ms
from onceover.connectors.codes import ConnectorCode
from onceover.connectors.model import OFFSETS_TOPIC_KEY, ConnectorOffsets
from onceover.connectors.offsets.configtopic import TARGET, ConfigRecords
from onceover.errors import NeedsOperator, UsageError

_VERSION: Final = 1
_SALT_BYTES: Final = 16
_MODE: Final = 0o600
# Steps: offsets were written where they go; a person is asked to decide; the configuration was put; it was
# resumed; somebody else was there, too.
COPIED: Final = "copy"
WENT_ON: Final = "went on elsewhere"
CONFIGURED: Final = "configure"
RESUMED: Final = "resume"
CHANGED: Final = "changed since"
# How a run ends with a connector that uses the offsets where they were moved.
SETTLED: Final = "settled"


@dataclass(frozen=True)
class Manifest:
    """One run for one connector.

    Args:
        operation: ``migrate`` or ``downgrade-hard`` or ``downgrade-soft``.
        connector: whose offsets.
        from_topic: where they were; ``to_topic`` where they go.
        former: the connector's own topic before, None without one: what rollback puts back.
        begun_ms: when the run began; its name. Later than that of every run before it, whatever clocks say.
        initial_state: what the connector did before it was stopped.
        salt: of ``config_hash``, which covers everything but the topic.
        exactly_once: whether the workers were.
        epochs: offsets of the connector's records in the workers' configuration topic.
        offsets: the raw values by key; None before the snapshot. Stale keys have the value None.
        end_offsets: how far each partition was read for it.
        isolation: how.
        landed: the end of each partition of the topic that the connector goes on in, when the offsets were
            there: what it writes itself comes after it. Empty before.
        landed_in: which topic of that name it was, as Kafka tells them apart; empty where that is not known.
        left: the connector's orders (``ConfigRecords.orders``) as this run left them; None: not known.
        asking: the state that it was about to ask for; empty when it knows what became of that.
        given: offsets of the orders that were its own, as far as it knows them.
        steps: what was done, with the time of each.
        finished: nothing is left to do.
        place: of which Connect cluster it is, as its file says; empty where that goes without saying.
    """

    operation: str
    connector: str
    from_topic: str
    to_topic: str
    former: str | None
    begun_ms: int
    initial_state: str
    salt: str
    config_hash: str
    exactly_once: bool
    epochs: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[bytes, bytes | None] | None = None
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    isolation: str = ""
    landed: Mapping[int, int] = field(default_factory=dict)
    landed_in: str = ""
    left: Mapping[str, int] | None = None
    asking: str = ""
    given: tuple[int, ...] = ()
    steps: tuple[tuple[str, int], ...] = ()
    finished: bool = False
    place: str = ""

    @classmethod
    def begin(
        cls,
        operation: str,
        connector: str,
        route: tuple[str, str],
        initial_state: str,
        config: Mapping[str, str],
        epochs: Mapping[str, int],
        *,
        exactly_once: bool,
        behind_ms: int = 0,
    ) -> Manifest:
        """Return the manifest of a run that begins now.

        Args:
            route: from which topic to which.
            behind_ms: when the newest run before it began, maybe at a machine whose clock is ahead.
        """
        salt = secrets.token_hex(_SALT_BYTES)
        return cls(
            operation=operation,
            connector=connector,
            from_topic=route[0],
            to_topic=route[1],
            former=config.get(OFFSETS_TOPIC_KEY) or None,
            begun_ms=max(now_ms(), behind_ms + 1),
            initial_state=initial_state,
            salt=salt,
            config_hash=_config_hash(salt, config),
            exactly_once=exactly_once,
            epochs=dict(epochs),
        )

    @property
    def values(self) -> dict[bytes, bytes]:
        """The offsets that are there, without stale keys."""
        return {key: value for key, value in (self.offsets or {}).items() if value is not None}

    @property
    def digest(self) -> str:
        """SHA-256 over keys and values; proves that the file is what was written."""
        found = hashlib.sha256()
        for key, value in sorted((self.offsets or {}).items()):
            for part in (key, b"" if value is None else value):
                found.update(len(part).to_bytes(8, "big") + part)
            found.update(b"\0" if value is None else b"\1")
        return found.hexdigest()

    def has_config(self, config: Mapping[str, str]) -> bool:
        """Tell whether a configuration is the run's, whatever its offsets topic."""
        return _config_hash(self.salt, config) == self.config_hash

    def with_snapshot(self, snapshot: ConnectorOffsets) -> Manifest:
        """Return it with what was read."""
        return replace(
            self,
            offsets=dict(snapshot.values),
            end_offsets=dict(snapshot.end_offsets),
            isolation=str(snapshot.isolation),
        )

    def with_destination(self, ends: Mapping[int, int], topic_id: UUID | None = None) -> Manifest:
        """Return it with where the connector's own records will begin."""
        return replace(self, landed=dict(ends), landed_in=_identity(topic_id))

    def is_elsewhere(self, topic_id: UUID | None) -> bool:
        """Tell whether this is another topic than the one in which it has landed, where that is known."""
        now = _identity(topic_id)
        return bool(now and self.landed_in) and now != self.landed_in

    def is_there(self, topic_id: UUID | None) -> bool:
        """Tell whether this is known to be the topic in which it has landed."""
        return bool(self.landed_in) and _identity(topic_id) == self.landed_in

    def with_orders(self, left: Mapping[str, int], asking: str = "") -> Manifest:
        """Return it with the connector's orders as they are, and the state that it will be asked for."""
        return replace(self, left=dict(left), asking=asking)

    def with_given(self, offset: int) -> Manifest:
        """Return it with one more order that was its own."""
        return replace(self, given=(*self.given, offset))

    def overtaken(self, records: ConfigRecords) -> bool:
        """Tell whether a state of the connector was asked for that this run is not known to have asked for.

        What it was brought to then is what is meant, and the run is over. That goes for a command, too, that
        this run was killed in: the record may be a person's. The one that it has asked a person for is not.
        """
        if self.left is None or self.has_step(WENT_ON):
            return False
        return records.orders(self.connector).get(TARGET) != self.left.get(TARGET)

    def has_step(self, step: str) -> bool:
        """Tell whether a step was done."""
        return any(name == step for name, _ in self.steps)

    @property
    def is_settled(self) -> bool:
        """True when its connector was left with the offsets in ``to_topic``, and not taken back."""
        return self.finished and bool(self.steps) and self.steps[-1][0] == SETTLED

    def with_step(self, step: str, *, finished: bool = False) -> Manifest:
        """Return it with one more step done."""
        return replace(self, steps=(*self.steps, (step, now_ms())), finished=finished)

    def goes_on_from(self, other: Manifest) -> bool:
        """Tell whether it is ``other`` and more of the same run: a step, or an order that came later.

        Not where two machines have gone on from the same place: then neither knows what the other did.
        """
        if self.begun_ms != other.begun_ms or self.steps[: len(other.steps)] != other.steps:
            return False
        orders = self._last_order, other._last_order
        return orders[0] >= orders[1] and (orders[0] > orders[1] or len(self.steps) > len(other.steps))

    @property
    def _last_order(self) -> int:
        """Offset of the connector's newest order that the run knows of: they are noted without a step."""
        return max((*(self.left or {}).values(), *self.given), default=-1)

    def encode(self) -> bytes:
        """Return the file's content."""
        document = asdict(self) | {"offsets": None if self.offsets is None else self.pairs()}
        return json.dumps({"v": _VERSION, **document, "sha256": self.digest}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Read a file's content.

        Raises:
            ValueError: it is no manifest, or not what was written.
        """
        document = json.loads(content)
        try:
            pairs = document.pop("offsets")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is no manifest ({error})") from error
        return cls.of_document(document, pairs)

    def pairs(self) -> list[list[str | None]]:
        """Return the offsets as they are written down: keys and values in Base64."""
        return [_pair(*item) for item in (self.offsets or {}).items()]

    def public_document(self) -> dict[str, Any]:
        """Return it without offsets, and without anything that a configuration could be guessed from.

        ``read`` tells whether there are offsets.
        """
        document = asdict(replace(self, offsets=None, salt="", config_hash=""))
        del document["offsets"]
        return {"v": _VERSION, **document, "sha256": self.digest, "read": self.offsets is not None}

    @classmethod
    def of_document(cls, document: Mapping[str, Any], pairs: list[list[str | None]] | None) -> Manifest:
        """Return what was written down, with its offsets.

        Raises:
            ValueError: it is no manifest, or not what was written.
        """
        fields = dict(document)
        try:
            version, digest = fields.pop("v"), fields.pop("sha256")
            if version != _VERSION:
                raise ValueError(f"version {version} is not known")
            for name in ("end_offsets", "landed"):
                fields[name] = {int(k): v for k, v in fields.get(name, {}).items()}
            fields["given"] = tuple(fields.get("given", ()))
            fields["steps"] = tuple((name, at_ms) for name, at_ms in fields["steps"])
            found = cls(**fields, offsets=None if pairs is None else dict(map(_unpair, pairs)))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is no manifest ({error})") from error
        if found.digest != digest:
            raise ValueError("its offsets do not have the hash that was written with them")
        return found


class Elsewhere(Protocol):
    """Where manifests are kept beside the files."""

    def load(self, connector: str, operation: str) -> Manifest | None:
        """Return the newest run's manifest, None when there is none."""

    def place(self) -> str:
        """Return which Connect cluster it is: its Connect file may have been pointed at another one since."""


class ManifestStore:
    """The manifests of one Connect cluster.

    Args:
        home: directory; created when the first one is written.
        elsewhere: has them too, also those of runs at other machines; None for the files alone.
    """

    def __init__(self, home: Path, elsewhere: Elsewhere | None = None) -> None:
        self._home = home
        self._elsewhere = elsewhere

    def path(self, connector: str, operation: str) -> Path:
        """Return the file of a connector's newest run."""
        # A connector's name may hold anything.
        return self._home / f"{file_name(connector)}.{operation}.json"

    def load(self, connector: str, operation: str) -> Manifest | None:
        """Return the newest run's manifest, None when there is none.

        The cluster has the newest run, whoever's it is, and is told first. The file may know a step more of
        it, or what became of an order, where the cluster could not be told: then it counts.

        Raises:
            NeedsOperator: MANIFEST_DAMAGED.
            OnceoverError: the cluster does not say.
        """
        here = self._own_file(connector, operation)
        there = None if self._elsewhere is None else self._elsewhere.load(connector, operation)
        if here is None or there is None:
            return here or there
        return here if here.goes_on_from(there) else there

    def _own_file(self, connector: str, operation: str) -> Manifest | None:
        """Return the file's manifest, unless it says that it is another Connect cluster's."""
        found = self._file(connector, operation)
        if found is None or self._elsewhere is None or not found.place:
            return found
        return found if found.place == self._elsewhere.place() else None

    def _file(self, connector: str, operation: str) -> Manifest | None:
        path = self.path(connector, operation)
        try:
            return Manifest.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise NeedsOperator(
                f"the manifest of {connector} cannot be read: {error}",
                code=ConnectorCode.MANIFEST_DAMAGED,
                where=str(path),
                resolve="move the file away: the next run goes on from what is on the clusters",
            ) from error

    def owes(self, connector: str, operation: str) -> bool:
        """Tell whether the newest run has not come to its end; one whose manifest is damaged may not have."""
        try:
            found = self.load(connector, operation)
        except NeedsOperator:
            # Whoever goes on with this connector is told; the others are not kept from it.
            return True
        return found is not None and not found.finished

    def save(self, manifest: Manifest) -> None:
        """Write a manifest durably in place of the same run's; another run's is kept beside it.

        Raises:
            UsageError: MANIFEST, it cannot be written.
        """
        path = self.path(manifest.connector, manifest.operation)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._keep_other(path, manifest)
            place = manifest.place if self._elsewhere is None else self._elsewhere.place()
            _write_durably(path, replace(manifest, place=place).encode())
        except OSError as error:
            raise UsageError(
                f"the manifest cannot be written: {error.strerror}",
                code=ConnectorCode.MANIFEST,
                where=str(path),
                expected="a directory that this user may write, with room",
                resolve="set ONCEOVER_HOME to one, then run again",
            ) from error

    def _keep_other(self, path: Path, manifest: Manifest) -> None:
        other = self._file(manifest.connector, manifest.operation)
        if other is not None and other.begun_ms != manifest.begun_ms:
            # A copy: a full disk, or a kill, leaves the old one where it is looked for.
            _write_durably(path.with_suffix(f".{other.begun_ms}.json"), path.read_bytes())


def file_name(connector: str) -> str:
    """Return a name for files that is another for every connector, and no path."""
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in connector)[:80]
    if plain == connector != "":
        return plain
    return f"{plain}.{hashlib.sha256(connector.encode()).hexdigest()[:8]}"


def _identity(topic_id: UUID | None) -> str:
    """Return which topic it is; empty where brokers do not tell, as those before 2.8."""
    return str(topic_id) if topic_id is not None and topic_id.int else ""


def _config_hash(salt: str, config: Mapping[str, str]) -> str:
    rest = sorted((key, value) for key, value in config.items() if key != OFFSETS_TOPIC_KEY)
    return hashlib.sha256(json.dumps([salt, rest]).encode()).hexdigest()


def _pair(key: bytes, value: bytes | None) -> list[str | None]:
    return [_text(key), None if value is None else _text(value)]


def _unpair(pair: list[str | None]) -> tuple[bytes, bytes | None]:
    key, value = pair
    return base64.b64decode(key or "", validate=True), None if value is None else base64.b64decode(
        value, validate=True
    )


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _write_durably(path: Path, content: bytes) -> None:
    """Replace a file: after a crash there is the old one or the new one."""
    part = path.with_suffix(".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(part, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

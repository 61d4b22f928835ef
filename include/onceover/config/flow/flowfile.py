"""A flow: one direction of replication, as its YAML file describes it.

The models are closed (an unknown key is a fault) and frozen. ``client`` and ``handler_args`` keep
their ``${NAME}`` references unread, so printing, dumping or pickling a flow shows no secret.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from onceover.config import values
from onceover.config.clients.clusterspec import ClusterSpec
from onceover.config.closed import Closed
from onceover.config.patterns import whole_name
from onceover.config.units import parse_duration_ms, parse_size_bytes
from onceover.config.values import Rpo
from onceover.model import MOST_LANES, is_own_group

# The coordinator aborts a transaction after transaction.timeout.ms (15 s for a lane). One that is
# committed later than this looks like a fenced lane, so five seconds are kept for the commit.
MAX_TRANSACTION_INTERVAL: Final = "10s"
# Below this, one fetch response of a common size (1 MiB a partition) and its copy do not fit.
MIN_LANE_MEMORY: Final = "8MiB"
_INTERVAL_WHY: Final = "the target aborts a lane's transaction after 15s, which would look like fencing"


class TopicsSpec(Closed):
    """Which topics, how they are called on the target, and where they start."""

    include: Annotated[tuple[str, ...], BeforeValidator(values.some_patterns)]
    exclude: Annotated[tuple[str, ...], BeforeValidator(values.patterns)] = ()
    naming: Annotated[str, BeforeValidator(values.choice("identity", "prefix"))] = "identity"
    start: Annotated[str, BeforeValidator(values.start)] = "earliest"
    discovery_interval_ms: Annotated[int, BeforeValidator(values.duration("1s", "1h"))] = Field(
        default=parse_duration_ms("30s"), alias="discovery_interval"
    )
    sync_configs: Annotated[bool, BeforeValidator(values.boolean)] = True
    sync_acls: Annotated[bool, BeforeValidator(values.boolean)] = False

    @property
    def start_timestamp_ms(self) -> int | None:
        """Milliseconds since 1970 of ``timestamp:...``; ``None`` for earliest and latest."""
        return values.start_timestamp_ms(self.start)

    def selects(self, topic: str) -> bool:
        """Tell whether the filter names ``topic``; ``topics.scope`` decides what is copied."""
        return _selects(topic, self.include, self.exclude)


class TransactionSpec(Closed):
    """When a lane commits: fetch ran dry, ``max_bytes`` reached, at the latest ``max_interval``."""

    max_interval_ms: Annotated[
        int, BeforeValidator(values.duration("10ms", MAX_TRANSACTION_INTERVAL, _INTERVAL_WHY))
    ] = Field(default=parse_duration_ms("500ms"), alias="max_interval")
    max_bytes: Annotated[int, BeforeValidator(values.size("64KiB", "1GiB"))] = parse_size_bytes("256MiB")


class LimitsSpec(Closed):
    """What a flow may use."""

    memory_per_lane_bytes: Annotated[
        int, BeforeValidator(values.size(MIN_LANE_MEMORY, "64GiB", "a lane has to hold a fetch and its copy"))
    ] = Field(default=parse_size_bytes("128MiB"), alias="memory_per_lane")
    bytes_per_second: Annotated[
        int | None, BeforeValidator(values.optional(values.size("1KiB", "1024GiB", "per second, all lanes")))
    ] = None


class GroupsSpec(Closed):
    """Which consumer groups are moved along; Onceover's own never are."""

    include: Annotated[tuple[str, ...], BeforeValidator(values.patterns)] = (".*",)
    exclude: Annotated[tuple[str, ...], BeforeValidator(values.patterns)] = (
        "connect-.*",
        "console-consumer-.*",
    )

    def selects(self, group_id: str) -> bool:
        """Tell whether the filter names ``group_id``."""
        return not is_own_group(group_id) and _selects(group_id, self.include, self.exclude)


class StateSpec(Closed):
    """The flow's own topics on the target."""

    replication_factor: Annotated[int, BeforeValidator(values.replication_factor)] = -1
    map_retention_ms: Annotated[int, BeforeValidator(values.duration("1h", "3650d"))] = Field(
        default=parse_duration_ms("14d"), alias="map_retention"
    )


class MirrorMakerSpec(Closed):
    """What is written in MirrorMaker 2's own formats besides, for programs that read those."""

    checkpoints: Annotated[bool, BeforeValidator(values.boolean)] = False
    offset_syncs: Annotated[bool, BeforeValidator(values.boolean)] = False
    heartbeats: Annotated[bool, BeforeValidator(values.boolean)] = False
    checkpoint_interval_ms: Annotated[int, BeforeValidator(values.duration("1s", "1h"))] = Field(
        default=parse_duration_ms("60s"), alias="checkpoint_interval"
    )
    heartbeat_interval_ms: Annotated[int, BeforeValidator(values.duration("1s", "1h"))] = Field(
        default=parse_duration_ms("5s"), alias="heartbeat_interval"
    )


class SparkSpec(Closed):
    """Where the lanes run, and how long one Spark task copies."""

    master: Annotated[str, BeforeValidator(values.master)] = "local"
    task_length_ms: Annotated[
        int,
        BeforeValidator(values.duration("5s", "24h", "between two tasks Spark pauses about half a second")),
    ] = Field(default=parse_duration_ms("5m"), alias="task_length")


class SchedulesSpec(Closed):
    """Airflow schedules of the flow's own DAGs; ``None`` = started by hand."""

    replicate: Annotated[str | None, BeforeValidator(values.optional(values.schedule))] = None
    sync_group_offsets: Annotated[str | None, BeforeValidator(values.optional(values.schedule))] = None
    audit: Annotated[str | None, BeforeValidator(values.optional(values.schedule))] = "@daily"
    rehearse: Annotated[str | None, BeforeValidator(values.optional(values.schedule))] = "@weekly"


class ObjectivesSpec(Closed):
    """What a failover may cost: time without service, and records or seconds missing."""

    rto_ms: Annotated[int, BeforeValidator(values.duration("1s", "30d"))] = Field(
        default=parse_duration_ms("15m"), alias="rto"
    )
    rpo: Annotated[Rpo, BeforeValidator(values.rpo)] = Rpo(records=0)


class SwitchoverSpec(Closed):
    """How a planned switchover keeps writers off the source, and brings clients to the target.

    ``command`` is a program and its arguments; ``reverse`` the flow that copies back from then on.
    """

    fence: Annotated[str, BeforeValidator(values.choice("acls", "command", "person"))] = "acls"
    deny: Annotated[tuple[str, ...], BeforeValidator(values.principals)] = ("User:*",)
    redirect: Annotated[str, BeforeValidator(values.choice("person", "command"))] = "person"
    command: Annotated[tuple[str, ...], BeforeValidator(values.texts)] = ()
    quiet_ms: Annotated[int, BeforeValidator(values.duration("500ms", "5m"))] = Field(
        default=parse_duration_ms("2s"), alias="quiet"
    )
    reverse: Annotated[str | None, BeforeValidator(values.optional(values.flow_name))] = None


class CanarySpec(Closed):
    """Numbered records that `onceover metrics` writes on the source; ``interval`` None: none."""

    interval_ms: Annotated[int | None, BeforeValidator(values.optional(values.duration("1s", "1h")))] = Field(
        default=None, alias="interval"
    )
    topic: Annotated[str | None, BeforeValidator(values.optional(values.topic))] = None


class FlowKeys(Closed):
    """All keys of a flow file."""

    flow: Annotated[str, BeforeValidator(values.flow_name)]
    source: ClusterSpec
    target: ClusterSpec
    topics: TopicsSpec
    delivery: Annotated[str, BeforeValidator(values.choice("exactly_once", "at_least_once"))] = "exactly_once"
    lanes: Annotated[int, BeforeValidator(values.whole(1, MOST_LANES))] = 2
    transaction: TransactionSpec = TransactionSpec()
    limits: LimitsSpec = LimitsSpec()
    on_bad_record: Annotated[str, BeforeValidator(values.on_bad_record)] = "stop"
    handler: Annotated[str | None, BeforeValidator(values.optional(values.handler))] = None
    handler_args: Annotated[dict[str, Any], BeforeValidator(values.mapping)] = Field(default_factory=dict)
    groups: GroupsSpec = GroupsSpec()
    mirrormaker: MirrorMakerSpec = MirrorMakerSpec()
    state: StateSpec = StateSpec()
    spark: SparkSpec = SparkSpec()
    schedules: SchedulesSpec = SchedulesSpec()
    objectives: ObjectivesSpec = ObjectivesSpec()
    switchover: SwitchoverSpec = SwitchoverSpec()
    canary: CanarySpec = CanarySpec()

    @property
    def canary_topic(self) -> str:
        """Topic on the source that numbered records are written into."""
        return self.canary.topic or canary_topic_of(self.flow)


class Flow(FlowKeys):
    """A loaded flow file.

    Attributes:
        path: the file, absolute.
        sha256: hash of the file's bytes, before ``${NAME}`` is replaced; recorded in the layout.
    """

    path: Path
    sha256: str


def canary_topic_of(flow: str) -> str:
    """Return how a canary's topic is called where the flow file names none: like any topic that is copied."""
    return f"onceover-canary.{flow}"


def slots_of(master: str) -> int | None:
    """Return the tasks that ``local[N]`` runs at once; ``None`` when ``master`` does not say."""
    match = re.fullmatch(r"local\[([0-9]+)(?:,[0-9]+)?\]", master)
    return int(match.group(1)) if match else None


def _selects(name: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    def named(expressions: tuple[str, ...]) -> bool:
        return any(whole_name(expression, name) for expression in expressions)

    return named(include) and not named(exclude)

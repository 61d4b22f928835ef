"""What the two systems are told: MirrorMaker 2 well tuned, Onceover as a user would start it."""

from __future__ import annotations

import re

import yaml

from onceover_lab.bench.flowfile import flow_name, flow_yaml
from onceover_lab.bench.mirror import mirror_properties, mirrored_topic
from onceover_lab.bench.workloads import (
    AT_LEAST_ONCE,
    DEFAULT,
    EXTRA,
    MIRRORMAKER,
    MIRRORMAKER_200MS,
    MIRRORMAKER_PER_POLL,
    ONCEOVER,
    Contender,
    WorkloadKind,
)

THROUGHPUT = next(w for w in DEFAULT if w.kind is WorkloadKind.THROUGHPUT)
LATENCY = next(w for w in DEFAULT if w.kind is WorkloadKind.LATENCY)


def test_mirrormaker_runs_exactly_once_with_large_batches_and_long_transactions() -> None:
    found = mirror_properties(THROUGHPUT, MIRRORMAKER, 8083)
    expected = {
        "target.exactly.once.source.support": "enabled",
        "source->target.transaction.boundary": "interval",
        "source->target.transaction.boundary.interval.ms": "1000",
        "target.producer.batch.size": "1048576",
        "target.producer.linger.ms": "50",
        "target.producer.compression.type": "lz4",
        "source.consumer.max.poll.records": "5000",
        "tasks.max": "2",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:8083",
    }
    assert found | expected == found


def test_mirrormaker_does_not_linger_when_latency_counts() -> None:
    per_poll = mirror_properties(LATENCY, MIRRORMAKER_PER_POLL, 8083)
    assert per_poll["target.producer.linger.ms"] == "0"
    assert per_poll["source->target.transaction.boundary"] == "poll"
    assert "target.producer.batch.size" not in per_poll
    assert (
        mirror_properties(LATENCY, MIRRORMAKER_200MS, 8083)["source->target.transaction.boundary.interval.ms"]
        == "200"
    )


def test_config_sync_follows_the_workload() -> None:
    re_encode = next(w for w in EXTRA if w.name == "re-encode")
    assert mirror_properties(re_encode, MIRRORMAKER, 8083)["sync.topic.configs.enabled"] == "false"
    assert mirror_properties(THROUGHPUT, MIRRORMAKER, 8083)["sync.topic.configs.enabled"] == "true"


def test_mirrored_topic_has_the_alias_in_front() -> None:
    assert mirrored_topic("bench-latency") == "source.bench-latency"


def test_flow_file_includes_exactly_the_workloads_topic() -> None:
    document = yaml.safe_load(flow_yaml(THROUGHPUT, ONCEOVER, 2, "127.0.0.1:1", "127.0.0.1:2"))
    (pattern,) = document["topics"]["include"]
    assert re.fullmatch(pattern, THROUGHPUT.topic)
    assert not re.fullmatch(pattern, THROUGHPUT.topic + "x")
    assert document["source"]["client"] == {"bootstrap.servers": "127.0.0.1:1"}
    assert document["target"]["client"] == {"bootstrap.servers": "127.0.0.1:2"}


def test_every_run_is_a_flow_of_its_own_with_a_legal_name() -> None:
    runs = [(w, c, n) for w in (*DEFAULT, *EXTRA) for c in w.contenders for n in (1, 2, 3)]
    names = {flow_name(*run) for run in runs}
    assert len(names) == len(runs)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) for name in names)


def test_a_contenders_own_keys_are_in_its_flow_file_and_in_no_other() -> None:
    def delivery(contender: Contender) -> object:
        return yaml.safe_load(flow_yaml(THROUGHPUT, contender, 1, "127.0.0.1:1", "127.0.0.1:2")).get(
            "delivery"
        )

    assert (delivery(AT_LEAST_ONCE), delivery(ONCEOVER)) == ("at_least_once", None)

"""Broker configuration is complete and overridable."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.config.properties import parse_properties
from onceover.errors import UsageError
from onceover_lab.embed.config import NodePorts, render_server_properties


def parse(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def render(nodes: int, node_id: int = 1, **overrides: str) -> dict[str, str]:
    ports = [NodePorts(1000 + i, 2000 + i, 3000 + i) for i in range(nodes)]
    return parse(
        render_server_properties(
            node_id=node_id,
            nodes=ports,
            data=Path("/data"),
            security={},
            overrides={key.replace("_", "."): value for key, value in overrides.items()},
        )
    )


def test_every_listener_is_on_loopback() -> None:
    """No setting names an address that another machine could reach."""
    settings = render(3, node_id=2)

    listeners = settings["listeners"].split(",")
    assert listeners == [
        "CLIENT://127.0.0.1:1001",
        "INTERNAL://127.0.0.1:2001",
        "CONTROLLER://127.0.0.1:3001",
    ]
    assert settings["advertised.listeners"] == "CLIENT://127.0.0.1:1001,INTERNAL://127.0.0.1:2001"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:3000,2@127.0.0.1:3001,3@127.0.0.1:3002"


def test_single_node_replicates_once_and_three_nodes_survive_one() -> None:
    """Internal topics fit the number of brokers."""
    single, triple = render(1), render(3)

    assert single["transaction.state.log.replication.factor"] == "1"
    assert single["transaction.state.log.min.isr"] == "1"
    assert triple["transaction.state.log.replication.factor"] == "3"
    assert triple["transaction.state.log.min.isr"] == "2"
    assert triple["min.insync.replicas"] == "2"


def test_override_wins() -> None:
    """A caller's setting replaces the default of the same name."""
    assert render(1, offsets_topic_num_partitions="9")["offsets.topic.num.partitions"] == "9"


def test_topics_are_never_created_by_a_request() -> None:
    """As docs/architecture.md says."""
    assert render(1)["auto.create.topics.enable"] == "false"


def test_backslash_and_newline_do_not_break_the_file() -> None:
    """A value cannot smuggle in another setting."""
    settings = render(1, x="a\\b\ny=z")

    assert settings["x"] == "a\\\\b\\ny=z"
    assert "y" not in settings


def test_java_finds_a_folder_whose_name_is_not_ascii() -> None:
    """Java takes the bytes of such a file for Latin-1: a broker then wrote into another folder beside it."""
    folder = Path("/srv/Früchte und 数据/🎈")
    text = render_server_properties(
        node_id=1, nodes=[NodePorts(1, 2, 3)], data=folder, security={}, overrides={}
    )

    read = {entry.key: entry.value for entry in parse_properties(text.encode().decode("latin-1"))}
    # Java's characters are those of UTF-16.
    assert read["log.dirs"].encode("utf-16", "surrogatepass").decode("utf-16") == str(folder)


def test_a_folder_that_kafka_would_take_for_two_is_refused() -> None:
    """It ended with a stack trace of Java, and might write into either."""
    with pytest.raises(UsageError, match="a comma in its name") as refused:
        render_server_properties(
            node_id=1, nodes=[NodePorts(1, 2, 3)], data=Path("/srv/a,b"), security={}, overrides={}
        )
    assert "ONCEOVER_HOME" in str(refused.value)

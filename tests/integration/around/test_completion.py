"""What a shell offers at Tab is what the clusters hold."""

from __future__ import annotations

from pathlib import Path

from onceover.config.home import HOME_VARIABLE
from tests.support.commands.shell import words
from tests.support.flows.groups import commit
from tests.support.flows.replica import Replica
from tests.support.session.wait import wait_until


def test_topics_partitions_and_groups_of_the_flow_are_offered(replica: Replica, tmp_path: Path) -> None:
    """Of the side that is meant, and of the flow's topics only; nothing is created by asking."""
    topic = replica.topic("a", partitions=2)
    replica.source.plain(topic, 0, replica.source.records(1))
    replica.copy()
    group, back = f"{replica.name}-reader", f"{replica.name}-back"
    commit(replica.source_client, group, topic, {0: 0})
    commit(replica.target_client, back, topic, {0: 0})
    environment = {"ONCEOVER_FLOWS": str(replica.flow.path.parent), HOME_VARIABLE: str(tmp_path / "var")}

    def offers(typed: str, *expected: str) -> None:
        # On a busy machine a shell gets no words: whoever types presses the key again.
        asked = f"onceover {typed}"
        wait_until(lambda: words(asked, environment) == list(expected), 120.0, f"{expected} behind {asked}")

    flow = replica.flow.path.stem
    offers(f"partition resume {flow} ", f"{topic}:")
    # bash completes what is behind the colon.
    offers(f"partition resume {flow} {topic}:", "0", "1")
    offers(f"audit {flow} --topics {topic[:-1]}", topic)
    offers(f"groups plan {flow} --group {replica.name}", group)
    offers(f"groups plan {flow} --direction failback --group {replica.name}", back)
    offers(f"translate {flow} --to source {topic}", f"{topic}:")
    assert not (tmp_path / "var").exists()

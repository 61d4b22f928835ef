"""What a sample says about each record, and what it never shows."""

from __future__ import annotations

import json

from onceover.handlers.load import load_handler
from onceover.handling.forms import handler_use
from onceover.handling.sample import SampleOutcome, handled
from onceover.handling.sampled import document, lines
from onceover.model import TopicPartition
from onceover.wire.batches.records import DecodedRecord
from tests.unit.handlers import samples
from tests.unit.handlers.test_forms import group_of
from tests.unit.wire.batches.test_records import compacted_batch

SOURCE = TopicPartition("t", 1)


def outcomes(name: str, records: list[DecodedRecord], **args: object) -> list[SampleOutcome]:
    handler = load_handler(f"tests.unit.handlers.samples:{name}", args, "f.yaml")
    form = handler_use(handler, "f", 1 << 20).form(SOURCE, 5)
    return list(handled(SOURCE, form, group_of(compacted_batch(records, 0)), 0))


def records(count: int, value: bytes = b"secret\x1b[2J") -> list[DecodedRecord]:
    return [DecodedRecord(offset, 5, b"k", value) for offset in range(count)]


def test_every_record_has_one_fate() -> None:
    """Offsets 0, 1, 2 become none, one and two records, the one in another form."""
    found = outcomes("spread", records(3), partitions=5)
    assert [o.kind for o in found] == ["removed", "changed", "multiplied"]
    assert found[1].fields == ("headers",)
    assert [o.kind for o in outcomes("same_batch", records(2))] == ["kept", "kept"]
    assert outcomes("Wider", records(1), partitions=5)[0].fields == ("partition",)


def test_failures_are_named_and_the_others_still_judged() -> None:
    """A failing record hides nothing behind it."""
    found = outcomes("spread", [*records(1, b"bad"), *records(2)[1:]], partitions=5, bad="bad")
    assert [o.kind for o in found] == ["failed", "changed"]
    assert found[0].failure is not None and samples.SECRET.decode() not in found[0].failure


def test_payload_is_for_the_terminal_only_and_printable() -> None:
    """Neither JSON nor a pipe holds any of it."""
    found = outcomes("spread", records(3), partitions=5)
    text = json.dumps(document(found))
    assert "secret" not in text and '"changed": 1' in text and '"written": 3' in text
    assert "secret" not in "".join(lines(found, payload=False))
    shown = "\n".join(lines(found, payload=True))
    assert "secret.[2J" in shown and "\x1b" not in shown
    assert "offset 1: changed (headers)" in shown


def test_examples_are_few_and_long_values_are_cut() -> None:
    """Three of each kind, sixty characters each."""
    found = outcomes("spread", records(300, b"x" * 500), partitions=5)
    examples = document(found)["examples"]
    assert len(examples) == 9
    assert all(len(line) < 260 for line in lines(found, payload=True))

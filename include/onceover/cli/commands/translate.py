"""``onceover translate``: which offset on the other side a reader continues at, exactly."""

from __future__ import annotations

import argparse
from typing import Any, Final

from onceover.cli.terminal.output import CommandResult
from onceover.config.flow.load import load_flow, run_dir
from onceover.model import TopicPartition
from onceover.positions.translate import Translator
from onceover.shown import lined
from onceover.wire.offsetlookup import Translated, Translation
from onceover.wiring.flows import open_clusters

TARGET: Final = "target"
SOURCE: Final = "source"


def run(args: argparse.Namespace) -> CommandResult:
    """Translate; "not covered" is an answer like any other and ends with 0."""
    flow = load_flow(args.flow)
    asked: TopicPartition = args.partition
    to_source = args.to == SOURCE
    source, target = open_clusters(flow)
    made = Translator(target, flow.flow, run_dir(flow), handled=flow.handler is not None)
    with source, target, made as translator:
        found = translator.sources_of(asked) if to_source else translator.targets_of(asked)
        others = found if args.all else found[:1]
        answers = [
            _answer(offset, other, _translated(translator, asked, offset, other, to_source=to_source))
            for offset in args.offsets
            for other in others
        ]
    document = {
        "flow": flow.flow,
        "to": args.to,
        "topic": asked.topic,
        "partition": asked.partition,
        "answers": answers,
        "other_pairs": [str(tp) for tp in found[1:]],
    }
    lines = [_line(asked, answer) for answer in answers]
    if len(found) > 1 and not args.all:
        lines.append(f"records of {asked} are also in {len(found) - 1} other partitions: see --all")
    return CommandResult(document, lined(lines))


def _translated(
    translator: Translator, asked: TopicPartition, offset: int, other: TopicPartition, *, to_source: bool
) -> Translation:
    if to_source:
        return translator.to_source(asked, offset, source=other)
    return translator.to_target(asked, offset, target=other)


def _answer(offset: int, other: TopicPartition, found: Translation) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "offset": offset,
        "to_topic": other.topic,
        "to_partition": other.partition,
        "covered": isinstance(found, Translated),
    }
    if isinstance(found, Translated):
        return {**answer, "translated": found.offset}
    return {**answer, "covered_from": found.start, "covered_to": found.end, "why": found.why or None}


def _line(asked: TopicPartition, answer: dict[str, Any]) -> str:
    here = f"{asked} offset {answer['offset']}"
    there = f"{answer['to_topic']}:{answer['to_partition']}"
    if answer["covered"]:
        return f"{here} -> {there} offset {answer['translated']}"
    known = (
        "nothing is covered"
        if answer["covered_from"] is None
        else f"covered: {answer['covered_from']} to {answer['covered_to']}"
    )
    why = f" ({answer['why']})" if answer["why"] else ""
    return f"{here} -> {there} not covered; {known}{why}"

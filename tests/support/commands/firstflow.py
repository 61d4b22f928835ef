"""docs/first-flow.md as somebody follows it: what is typed there works, and prints what stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from onceover.cli.parsing import parse
from tests.support.commands.newcomer import PROJECT, TIMEOUT_S, Machine
from tests.support.session.wait import wait_until

PAGE: Final = PROJECT / "docs" / "first-flow.md"
FILE: Final = "orders.yaml"
_PROMPT: Final = "$ onceover "
_REPLICATE: Final = f"{_PROMPT}replicate ./{FILE} --until forever"
_AUDIT: Final = f"{_PROMPT}audit ./{FILE}"
# What is another one on each machine, or at each time, and what stands for it in a comparison.
_OTHERWISE: Final = (
    (re.compile(r"[\w.-]+:\d{4,5}\b"), "ADDRESS"),
    (re.compile(r"(?<=[ (])/[^ )]+"), "PATH"),
    (re.compile(r"\b[\d.]+ m?s\b"), "TIME"),
    (re.compile(r"(TIME) on \S+"), r"\1 on HOST"),
    (re.compile(r"\s+"), " "),
)
_TOPIC, _PARTITIONS, _RECORDS, _GROUP, _READ = "orders", 3, 100, "billing", 60


@dataclass(frozen=True)
class Typed:
    """A command of the page, and what it prints there; ``...`` stands for what is left out."""

    line: str
    printed: tuple[str, ...]


def typed(page: str) -> Iterator[Typed]:
    """Yield the commands that a page shows behind a prompt."""
    for block in blocks(page, ""):
        for part in block.split("\n$ ") if block.startswith("$ ") else ():
            line, *printed = part.removeprefix("$ ").splitlines()
            yield Typed(f"$ {line}", tuple(printed))


def blocks(page: str, language: str) -> list[str]:
    """Return the examples of a page that are written in a language; in none, what a shell shows."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [text for named, text in found if named == language]


def walk(machine: Machine, folder: Path, *, spark: bool) -> None:
    """Follow the page between the machine's clusters.

    Args:
        folder: where its reader is.
        spark: also run what starts Spark; without, the flow's lanes run in a process of the tests, and the
            line of the audit is only understood.
    """
    page = PAGE.read_text()
    (text,) = blocks(page, "yaml")
    (folder / FILE).write_text(text)
    (path,) = re.findall(r"^export PATH=.*$", page, re.MULTILINE)
    clusters = {side: str(cluster["bootstrap"]) for side, cluster in machine.status().clusters.items()}
    given = f"export SOURCE={clusters['east']} TARGET={clusters['west']}"
    before = f"cd {shlex.quote(str(PROJECT))} && {path} && cd {shlex.quote(str(folder))} && {given}"
    _fill(machine)
    lines = list(typed(page))
    behind = [each.line for each in lines].index(_REPLICATE)
    for each in lines[:behind]:
        _type(machine, before, each)
    with _replicating(machine, before, folder, spark=spark):
        for each in lines[behind + 1 :]:
            if each.line == _AUDIT and not spark:
                parse(shlex.split(each.line.removeprefix(_PROMPT)))
            else:
                _type(machine, before, each)


def _type(machine: Machine, before: str, each: Typed) -> None:
    done = machine.type(f"{before} && {each.line.removeprefix('$ ')}")
    assert done.returncode == 0, f"{each.line}\n{done.stdout}"
    seen = iter([_alike(line) for line in done.stdout.splitlines()])
    for line in each.printed:
        assert line == "..." or _alike(line) in seen, f"{each.line}\nhas no line {line!r}:\n{done.stdout}"


def _alike(line: str) -> str:
    for pattern, instead in _OTHERWISE:
        line = pattern.sub(instead, line)
    return line.strip()


def _fill(machine: Machine) -> None:
    """Make what the page says is there: a topic with records, and a group that has read some of them."""
    admin = machine.east
    admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": str(machine.status().clusters["east"]["bootstrap"])})
    for number in range(_PARTITIONS * _RECORDS):
        producer.produce(_TOPIC, b"order", str(number).encode(), partition=number % _PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    read = [TopicPartition(_TOPIC, number, _READ) for number in range(_PARTITIONS)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(_GROUP, read)])[_GROUP].result(TIMEOUT_S)


@contextmanager
def _replicating(machine: Machine, before: str, folder: Path, *, spark: bool) -> Iterator[None]:
    """Have the copy run in another shell from when it has caught up; it ends well when it was stopped."""
    line = _REPLICATE.removeprefix("$ ")
    if not spark:
        line = f"{sys.executable} -m tests.support.flows.flow_process {FILE} --forever --seconds {TIMEOUT_S}"
    environ = machine.environ | {"PYTHONPATH": os.pathsep.join((str(PROJECT), str(PROJECT / "include")))}
    with (folder / "copy.log").open("w") as log:
        copy = subprocess.Popen(
            ["bash", "-c", f"{before} && exec {line}"], env=environ, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: _caught_up(machine, before, copy), TIMEOUT_S, "all is copied")
        yield
        assert copy.wait(TIMEOUT_S) == 0, (folder / "copy.log").read_text()
    finally:
        copy.kill()
        copy.wait(TIMEOUT_S)


def _caught_up(machine: Machine, before: str, copy: subprocess.Popen[bytes]) -> bool:
    assert copy.poll() is None, "the copy has ended; copy.log says why"
    return "\norders-dr: caught up " in "\n" + machine.type(f"{before} && onceover status ./{FILE}").stdout

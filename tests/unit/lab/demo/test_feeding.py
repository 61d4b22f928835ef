"""How far the feed is, as people read it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from onceover_lab.demo.connector import lengthen
from onceover_lab.demo.feeding import FeedStatus, down, status


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (FeedStatus("feeding", 41_000), "running, 41,000 of 336,776 flights, 100 a second"),
        (FeedStatus("complete", 336_776), "complete, 336,776 of 336,776 flights"),
        (FeedStatus("stopped", 5), "stopped after 5 of 336,776 flights"),
        (FeedStatus("failed", 5, message="refused"), "failed after 5 of 336,776 flights: refused"),
    ],
)
def test_each_state_says_how_far_it_is(found: FeedStatus, text: str) -> None:
    """And why it went no further."""
    assert found.describe() == text


def test_feed_whose_process_is_gone_is_not_shown_as_running(tmp_path: Path) -> None:
    """What it wrote last would look alive for ever."""
    assert status(tmp_path) is None
    folder = tmp_path / "clusters" / "feed"
    folder.mkdir(parents=True)
    (folder / "feed.json").write_text(json.dumps(asdict(FeedStatus("feeding", 7))))
    found = status(tmp_path)
    assert found is not None
    assert (found.state, found.fed, found.message) == ("failed", 7, "its process was killed")
    assert down(tmp_path) is False


def test_down_leaves_a_reader_of_its_file_alone(tmp_path: Path) -> None:
    """Such as a `tail -f` or an editor."""
    path = tmp_path / "clusters" / "feed" / "feed.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(asdict(FeedStatus("feeding", 7))))
    reader = subprocess.Popen(["tail", "-f", str(path)], stdout=subprocess.PIPE)
    with reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.read(1) == b"{"
            assert down(tmp_path) is False
            assert reader.poll() is None
        finally:
            reader.kill()


def test_connectors_file_grows_by_whole_lines_and_never_ends(tmp_path: Path) -> None:
    """A line at each turn, airports only, again from the first one."""
    file = tmp_path / "airports.csv"
    turns = lengthen(file)
    for _ in range(1_459):
        next(turns)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1_459
    assert lines[0] == lines[1_458]
    assert lines[0].startswith("04G,")

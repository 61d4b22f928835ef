"""The page of one topic: why it is copied, or is not, as ``onceover status --topic`` answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onceover.audit.report.htmlpage import render
from onceover.board.known import partition_row, shortened
from onceover.board.page import NAMED, Links, Look, seen_words
from onceover.exitstatus import OK, TEMPORARY, USAGE
from onceover.operate.why import explain_name
from onceover.state.records.verdicts import Verdict

_TEMPLATES: Final = Path(__file__).with_name("templates")
_ROWS: Final = 100
_SHOWN_NAME: Final = 250
_COLOURS: Final = {OK: Verdict.PASS, TEMPORARY: Verdict.UNVERIFIABLE, USAGE: Verdict.UNVERIFIABLE}


def one_topic(look: Look, entry: Mapping[str, Any], topic: str, links: Links, *, still: bool = False) -> str:
    """Return the page of a topic of a flow, by its name on either side; ``still`` as on the others.

    Of what can be no topic's name the page says so.
    """
    if not NAMED.fullmatch(topic):
        return render(
            "notopic", beside=_TEMPLATES, flow=entry["flow"], topic=shortened(topic, _SHOWN_NAME), links=links
        )
    found = explain_name(entry, topic)
    return render(
        "topic",
        beside=_TEMPLATES,
        flow=entry["flow"],
        topic=topic,
        found=found,
        heading=look.dated(str(found.answer).replace("_", " "), topic),
        colour=Verdict.UNVERIFIABLE if look.is_stale else _COLOURS.get(found.exit_code, Verdict.FAIL),
        rows=[partition_row(entry, p) for p in found.partitions[:_ROWS]],
        more=max(0, len(found.partitions) - _ROWS),
        look=look,
        seen=seen_words(look),
        still=still,
        links=links,
    )

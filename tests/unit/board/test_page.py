"""The Onceover page without clusters: what it says, what it leaves out, what nobody can make it do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from markupsafe import escape

from onceover.board.charts import ChartPoint, line_chart
from onceover.board.page import STALE_S, TOPIC, Links, Look, all_flows, no_such_flow, one_flow
from onceover.board.samples import KEPT, LagSample, Samples, speed_of
from onceover.board.topicpage import one_topic
from onceover.errors import Retriable, UsageError
from onceover.groups.standing import unknown_standing
from onceover.operate.statusfacts import StatusFacts, StatusSide
from onceover.operate.statusread import FlowFacts
from onceover.operate.statusshape import broken_entry, shape
from onceover.operate.why import explain_name
from onceover.shown import visible
from tests.support.raw.hostilenames import HOSTILE

# What Kafka takes for the name of a topic.
_NAME = r"[a-zA-Z0-9._-]{1,249}"
LINKS = Links("/", {"Copy": "/dags/replicate"}, {})
RPO = {"records": 0, "seconds": None}
LOST: dict[str, Any] = {"rpo_offsets": 0, "rpo_s": 0.0}
UNKNOWN: dict[str, Any] = {"rpo_offsets": None, "rpo_s": None}


def entry(name: str = "orders", **changes: Any) -> dict[str, Any]:
    """Return what ``status`` says of a flow that was never started, with changes."""
    source, target = StatusSide(alias="east"), StatusSide(alias="west")
    told = shape(StatusFacts(flow=name, now_ms=1000.0, source=source, target=target, state=FlowFacts()))
    return {**told, "drills": None, "drills_error": None, **changes}


def partition(number: int, state: str = "caught_up", lag: int | None = 0, **changes: Any) -> dict[str, Any]:
    told = {
        "topic": "orders", "partition": number, "state": state,
        "stop": None, "open_offsets": 0,
        "open_transaction": None, "stuck_s": None, "begun": True, "lane": 0, "target_topic": "orders",
        "oldest_missing_s": None, "verified": None, "partitions": 1,
        "position": 5, "lso": 5, "lag_offsets": lag,
    }  # fmt: skip
    return {**told, **changes}


def stopped(number: int, name: str = "x") -> dict[str, Any]:
    stop = {"code": "RECORD_REFUSED", "message": f"bad {name}", "resolve": f"onceover partition skip {name}"}
    return partition(number, "stopped", 7, stop=stop)


def pages(told: dict[str, Any], samples: tuple[LagSample, ...] = ()) -> tuple[str, str]:
    look = Look([told], 3.0)
    return all_flows(look, {told["flow"]: samples}, LINKS), one_flow(look, told, samples, LINKS)


def test_what_needs_somebody_comes_first_with_the_command() -> None:
    """Of flows, and of partitions."""
    need = {"code": "RECORD_REFUSED", "message": "bad", "resolve": "onceover partition skip", "exit": 3}
    bad = entry("zebra", exit=3, needs=[need], partitions=[partition(0), stopped(1)])
    text = all_flows(Look([entry("apple"), bad], 1.0), {}, LINKS)
    assert "1 of 2 flows needs somebody" in text
    assert text.index("zebra") < text.index("apple")
    assert "onceover partition skip" in text
    page = one_flow(Look([bad], 1.0), bad, (), LINKS)
    assert page.index("orders:1") < page.index("orders:0")


def test_what_nobody_knows_is_no_number() -> None:
    """Neither in tables nor in plots: a gap."""
    told = entry(lag_offsets=None, exit=5, partitions=[partition(0, "copying", None)])
    overview, page = pages(told, (LagSample(0, 5, 1.0), LagSample(10, None, None), LagSample(20, 4, 1.0)))
    assert "not fully known" in overview
    assert "unknown" in overview
    assert page.count("<polyline") == 4, "two plots of two stretches each"
    assert ">None<" not in overview + page


def test_before_anything_was_seen_it_says_that_it_asks() -> None:
    """And where it cannot ask any more, why, beside what was seen before."""
    assert "Asking the clusters" in all_flows(Look([], None), {}, LINKS)
    assert "There are no flow files" in all_flows(Look([], 1.0), {}, LINKS)
    text = all_flows(Look([entry()], 100.0, "the disk is full"), {}, LINKS)
    assert "the disk is full" in text
    assert "1 min 40 s ago" in text
    assert "orders" in text


def test_a_broken_file_is_shown_with_its_fault() -> None:
    """It hides no other."""
    error = UsageError("unknown key tarket", code="BAD_CONFIG", resolve="correct it")
    told = {
        **broken_entry("bad", "/x/bad.yaml", error),
        "drills": None,
        "drills_error": None,
        "throughput": [],
    }
    text = all_flows(Look([entry(), told], 1.0), {}, LINKS)
    assert "unknown key tarket" in text
    assert "unknown key tarket" in one_flow(Look([told], 1.0), told, (), LINKS)


@pytest.mark.parametrize("name", ["Orders", "\u00fcber", "caf\udce9", "x" * 101, "<i>", "a b", "../x"])
def test_a_file_that_no_flow_can_be_called_after_is_shown_and_leads_nowhere(name: str) -> None:
    """Its address would be nobody's page; what cannot be shown is written as an escape."""
    told = {
        **broken_entry(name, f"/x/{name}.yaml", UsageError("its name cannot be a flow's")),
        "drills": None,
    }
    text = all_flows(Look([entry(), told], 1.0), {}, LINKS)
    assert "its name cannot be a flow" in text
    assert escape(visible(name)) in text
    assert text.count('href="flows/') == 1
    assert text.encode()


def test_thousands_of_partitions_make_no_larger_page() -> None:
    """What is stopped is among those that are shown."""
    many = [partition(number) for number in range(5_000)]
    told = entry(partitions=[*many, stopped(5_000)], topics=[])
    page = one_flow(Look([told], 1.0), told, (), LINKS)
    assert len(page) < 100_000
    assert "orders:5000" in page
    assert "4,901 more" in page


def test_drills_are_shown_with_their_reports() -> None:
    """The page is linked where it is at hand."""
    drills = [
        {"drill": "d2", "mode": "rehearsal", "began_ms": 0, "result": "PASS", "rto_s": 1.5, **LOST},
        {"drill": "d1", "mode": "planned", "began_ms": 0, "result": None, "rto_s": None, **UNKNOWN},
    ]
    told = entry(drills={"drills": drills, "rpo": RPO})
    page = one_flow(Look([told], 1.0), told, (), Links("/", {}, {("orders", "d2"): "/onceover/drills/x"}))
    assert 'href="/onceover/drills/x"' in page
    assert "not ended" in page
    unread = {"drills": [], "rpo": RPO, "schedule": "@weekly", "next_ms": 86_400_000}
    damaged = entry(drills=unread, drills_error="JOURNAL_DAMAGED: somebody wrote there")
    page = one_flow(Look([damaged], 1.0), damaged, (), LINKS)
    assert "somebody wrote there" in page
    assert "1970-01-02" in page, "the next one comes from the file"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing(name: str) -> None:
    """As many signs of HTML as with a harmless name."""

    def told(name: str) -> dict[str, Any]:
        need = {"code": "X", "message": name, "resolve": f"do {name}", "exit": 3}
        return entry(
            "orders",
            exit=3,
            needs=[need],
            notes=[{"object": name, "code": "X", "message": name, "resolve": name}],
            partitions=[{**stopped(0, name), "topic": name}],
            topics=[{"topic": name, "target_topic": name, "in": False, "reason": name, "partitions": 1}],
            groups=unknown_standing(UsageError(name).as_dict()),
            drills_error=f"bad {name}",
        )

    # With a page of its own as that one has it.
    like = "x" if re.fullmatch(_NAME, name) else "x y"
    for hostile, harmless in zip(pages(told(name)), pages(told(like)), strict=True):
        assert hostile.count("<") == harmless.count("<")
        assert "<script" not in hostile
    assert no_such_flow(name, LINKS).count("<") == no_such_flow("x", LINKS).count("<")


def test_no_page_loads_or_runs_anything() -> None:
    """Every address in it is one of its links."""
    for page in pages(entry(partitions=[partition(0)]), (LagSample(0, 1, 1.0), LagSample(9, 2, 1.0))):
        assert "<script" not in page
        assert re.findall(r"(?:src|url)\s*[=(]", page) == []
        assert set(re.findall(r'href="([^"]*)"', page)) <= {
            "data:,",
            "/",
            "/dags/replicate",
            "../",
            "?still",
            "flows/orders",
            "orders/topics/orders",
        }


def test_old_news_are_no_good_news() -> None:
    """A page that somebody comes back to says that it asks again, and is not green."""
    overview, page = pages(entry())
    assert 'header class="PASS"' in overview and 'header class="PASS"' in page
    for look in (Look([entry()], 3_600.0), Look([entry()], 1.0, "no memory")):
        overview = all_flows(look, {}, LINKS)
        assert "Asking the clusters again" in overview
        for text in (overview, one_flow(look, look.entries[0], (), LINKS)):
            assert 'header class="PASS"' not in text


def test_a_text_of_any_length_makes_no_larger_page() -> None:
    """A file with thousands of faults is told with the first ones."""
    need = {"code": "X", "message": "x" * 1_000_000, "resolve": "y", "exit": 2}
    overview, page = pages(entry(exit=2, needs=[need]))
    assert len(overview) + len(page) < 60_000


def test_a_page_can_be_told_to_hold_still() -> None:
    """Who reads by ear, or has opened a list, is not put back to its beginning."""
    look = Look([entry()], 1.0)
    assert 'href="?still"' in all_flows(look, {}, LINKS)
    assert 'href="?"' in all_flows(look, {}, LINKS, still=True)


def test_a_clock_that_was_set_back_leaves_the_plot_whole() -> None:
    """Nothing is drawn beyond its edges."""
    svg = line_chart([ChartPoint(100_000, 1), ChartPoint(50_000, 2), ChartPoint(60_000, 3)], str, "x")
    xs = [
        float(x)
        for points in re.findall(r'points="([^"]*)"', svg)
        for x in re.findall(r"(-?[\d.]+),", points)
    ]
    assert all(0 <= x <= 360 for x in xs)


def test_what_is_remembered_is_bounded_and_forgets_flows_that_are_gone() -> None:
    """The oldest go first."""
    samples = Samples()
    for at_ms in range(KEPT + 5):
        samples.add([entry("a", lag_offsets=at_ms), entry("b")], at_ms)
    assert len(samples.of("a")) == KEPT
    assert samples.of("a")[-1].lag_offsets == KEPT + 4
    samples.add([entry("a")], KEPT + 5)
    assert samples.of("b") == ()


def test_speed_is_what_partitions_moved_between_two_looks() -> None:
    """Of those that both have seen; one that stands further back was made anew: no number."""
    assert speed_of({"a:0": 5, "b:0": 7}, {"a:0": 25, "c:0": 100}, 2_000) == 10.0
    assert speed_of({"a:0": 5}, {"a:0": 2}, 2_000) is None
    assert speed_of({}, {"a:0": 2}, 2_000) is None
    samples = Samples()
    for at_ms, position in ((0, 5), (1_000, 9)):
        samples.add([entry(partitions=[partition(0, position=position)])], at_ms)
    assert [sample.copied_per_s for sample in samples.of("orders")] == [None, 4.0]


def test_where_nobody_looked_a_plot_has_a_gap() -> None:
    """A line would claim what nobody has seen."""
    points = [ChartPoint(at_ms, 1) for at_ms in (0, 10_000, 400_000, 410_000)]
    assert line_chart(points, str, "x").count("<polyline") == 2


@pytest.mark.parametrize("highest", [0, 0.04, 1, 7, 99, 1_234_567, 10**12])
def test_a_plot_holds_its_line(highest: float) -> None:
    """Whatever the values are, nothing is drawn outside of it."""
    svg = line_chart(
        [ChartPoint(0, 0), ChartPoint(60_000, highest), ChartPoint(120_000, highest / 2)], str, "x"
    )
    numbers = [float(y) for _, y in re.findall(r"([\d.]+),([\d.]+)", re.findall(r'points="([^"]*)"', svg)[0])]
    assert all(0 <= y <= 130 for y in numbers)


def test_each_topic_has_a_page_that_says_why() -> None:
    """The same words as on the command line; of a name that no address can hold there is no page."""
    out = {
        "topic": "tmp", "target_topic": "tmp", "in": False, "reason": "exclude: t.*", "rule": "excluded",
        "pattern": "t.*", "on_source": True, "enrolled": False, "promoted": None, "partitions": 1,
    }  # fmt: skip
    odd = {**stopped(1), "topic": "../x"}
    told = entry(path="f.yaml", topics=[out], partitions=[partition(0, "stuck", 3, stuck_s=300.0), odd])
    look = Look([told], 1.0)
    page = one_flow(look, told, (), LINKS)
    linked = set(re.findall(r'href="orders/topics/([^"]*)"', page))
    assert linked == {"orders", "tmp"}
    assert "NOT_MOVING" in page and "has not moved for 5 min" in page
    for name in ("tmp", "orders", "nobody.knows"):
        text = one_topic(look, told, name, LINKS)
        found = explain_name(told, name)
        assert escape(found.line) in text and 'href="../../orders"' in text
        colour = {"orders": "FAIL", "tmp": "PASS"}.get(name, "UNVERIFIABLE")
        assert f'header class="{colour}"' in text
    assert 'header class="PASS"' not in one_topic(Look([told], 3600.0), told, "tmp", LINKS)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_nothing_on_a_topics_page(name: str) -> None:
    """As many signs of HTML as with a harmless name."""

    def told(name: str) -> str:
        known = entry(path=name, partitions=[{**stopped(0, name), "topic": "orders", "target_topic": name}])
        return one_topic(Look([known], 1.0), known, "orders", LINKS)

    assert told(name).count("<") == told("x").count("<")


def test_groups_are_shown_with_both_positions() -> None:
    """And what cannot be known of them is a sentence, not an empty table."""
    position = {"topic": "orders", "partition": 0, "committed": 5, "translated": 7, "current": None}
    group = {
        "group": "billing", "standing": "behind", "code": None, "reason": "forward", "resolve": None,
        "partitions": 1, "counts": {"behind": 1}, "lag": 2, "behind_offsets": 7, "positions": [position],
    }  # fmt: skip
    counts = {"needs_somebody": 0, "undecided": 0, "behind": 1, "in_place": 4}
    groups = {
        "error": None, "giving": "east", "receiving": "west", "counts": counts, "groups": [group], "more": 3,
        "remarks": [],
    }  # fmt: skip
    told = entry(groups=groups)
    page = one_flow(Look([told], 1.0), told, (), LINKS)
    assert "4 in place, 1 behind" in page and "and 3 more" in page
    assert re.search(r"orders:0</td><td[^>]*>5</td><td[^>]*>7</td><td[^>]*>-<", page)
    dark = entry(groups=unknown_standing(UsageError("no right", code="NOT_AUTHORIZED").as_dict()))
    assert "not known: no right" in one_flow(Look([dark], 1.0), dark, (), LINKS)


def test_trend_of_drills_has_a_bar_for_each_that_has_ended() -> None:
    """Failed ones stand out, one without a time is seen; the objective where it is near; when the next is."""
    drills = [
        {"drill": f"d{n}", "mode": "rehearsal", "began_ms": 86_400_000 * n, "result": result, "rto_s": rto_s}
        | LOST
        for n, (result, rto_s) in enumerate([(None, None), ("PASS", 2.0), ("FAIL", None), ("FAIL", 40.0)])
    ]
    told = {
        "drills": drills,
        "objective_s": 60.0,
        "rpo": {"records": 0, "seconds": None},
        "schedule": "@weekly",
        "next_ms": 86_400_000,
    }
    entries = [entry(drills=told), entry(drills={**told, "objective_s": 900.0})]
    near, far = (one_flow(Look([each], 1.0), each, (), LINKS) for each in entries)
    near, far = (text.split("on the source alone in the last drills")[0] for text in (near, far))
    assert (near.count('rect class="good"'), near.count('rect class="bad"')) == (1, 2)
    assert near.count('class="limit"') == 1 and far.count('class="limit"') == 0
    assert "objective 15 min" in far and "@weekly" in near and "1970-01-02 00:00:00 UTC" in near
    heights = [float(found) for found in re.findall(r'rect[^>]* height="([0-9.]+)"', near)]
    assert min(heights) >= 2 and max(heights) < 150


@pytest.mark.parametrize(
    ("objective", "mode", "lost", "bars"),
    [
        # Nothing may be lost: held against who keeps writers off.
        ({"records": 0, "seconds": None}, "rehearsal", [(0, 0.0), (1200, 3.5), (None, None)], (2, 0)),
        ({"records": 0, "seconds": None}, "planned", [(0, 0.0), (2, None), (None, None)], (1, 1)),
        ({"records": 100, "seconds": None}, "rehearsal", [(0, 0.0), (100, 9.0), (101, 0.1)], (2, 1)),
        ({"records": None, "seconds": 3.0}, "unplanned", [(9999, 2.5), (1, 3.5), (5, None)], (1, 1)),
        # Nothing is nothing, however old that was.
        ({"records": None, "seconds": 3.0}, "planned", [(0, None), (0, 0.0), (4, None)], (2, 0)),
    ],
)
def test_trend_of_losses_is_measured_as_the_objective_is(
    objective: Mapping[str, Any],
    mode: str,
    lost: Sequence[tuple[int | None, float | None]],
    bars: tuple[int, int],
) -> None:
    """What is above it stands out; what nobody knew is on the ground, and never called nothing."""
    drills = [
        {
            "drill": f"d{n}",
            "mode": mode,
            "began_ms": n,
            "result": "PASS",
            "rto_s": 1.0,
            "rpo_offsets": offsets,
            "rpo_s": seconds,
        }
        for n, (offsets, seconds) in enumerate(lost)
    ]
    told = {"drills": drills, "objective_s": 900.0, "rpo": objective, "schedule": None, "next_ms": None}
    each = entry(drills=told)
    page = one_flow(Look([each], 1.0), each, (), LINKS)
    chart, table = page.split("on the source alone in the last drills, objective")[1].split("<table>", 1)
    assert (chart.count('rect class="good"'), chart.count('rect class="bad"')) == bars
    assert sum(bars) + chart.count('rect class="unknown"') == 3
    assert table.count("<td>nothing</td>") == sum(offsets == 0 for offsets, _ in lost)
    assert table.count("<td>-</td>") == sum(offsets is None for offsets, _ in lost)


def dark(**changes: Any) -> dict[str, Any]:
    """Return what ``status`` says of a flow whose target does not answer."""
    source = StatusSide(alias="east")
    target = StatusSide(alias="west", error=Retriable("west:9092 does not answer"))
    told = shape(StatusFacts(flow="orders", now_ms=1000.0, source=source, target=target))
    return {**told, "drills": None, "drills_error": None, **changes}


def test_unknown_is_not_none() -> None:
    """A flow whose target is away has its audits, drills and partitions still: nobody can ask for them."""
    overview, page = pages(dark())
    for text in (overview, page):
        for claim in ("never audited", "none yet", "0 partitions", "rehearses one"):
            assert claim not in text
    assert page.count("west:9092 does not answer") >= 5, (
        "the need, audits, partitions, topics, groups, drills"
    )
    assert overview.count(">unknown<") == 6, "state, lag, oldest, commit, proven, audit"
    assert re.search(r"<b>unknown</b><span>partitions</span>", page)
    assert re.search(r"<b>unknown</b><span>starts so far</span>", page)
    never = pages(entry())
    assert "never audited" in never[0] and "none yet" in never[1] and "rehearses one" in never[1]


def test_a_source_that_is_away_leaves_known_what_the_target_keeps() -> None:
    """And the number of what it holds is unknown; the drills are asked of the target alone."""
    silent = {**StatusSide(alias="east", error=Retriable("east is away")).document()}
    row = partition(0, "unknown", None, lso=None)
    told = entry(source=silent, generation=3, partitions=[row], drills={"drills": [], "rpo": RPO})
    page = one_flow(Look([told], 1.0), told, (), LINKS)
    assert re.search(r'num">5</td><td class="num">unknown</td><td class="num">unknown</td>', page)
    assert '<td class="text">east is away</td>' in page, "why the partition is unknown"
    assert "rehearses one" in page and "never audited" in page
    assert "not known: east is away" in page, "topics that are left out"
    gone = entry(generation=3, target={**silent, "alias": "west"})
    assert "rehearses one" not in one_flow(Look([gone], 1.0), gone, (), LINKS), "drills were not asked for"


def test_only_commands_are_there_to_be_copied() -> None:
    """One click selects the command and nothing else; prose, and what is quoted otherwise, is prose."""
    resolve = "`onceover stop orders`, then `onceover replicate orders`: it goes on; lower `lanes` or not"
    need = {"code": "RUN_FAILED", "message": "it is over", "resolve": resolve, "exit": 3}
    stop = {"code": "X", "message": "bad", "resolve": resolve}
    told = entry(exit=3, needs=[need], partitions=[partition(0, "stopped", 7, stop=stop)])
    overview, page = pages(told)
    for text in (overview, page, one_topic(Look([told], 1.0), told, "orders", LINKS)):
        found = re.findall(r'<code class="command">([^<]*)</code>', text)
        assert found.count("onceover stop orders") == found.count("onceover replicate orders") >= 1
        assert "</code>: it goes on; lower `lanes` or not" in text
        assert re.findall(r"<code>[^<]*", text) == []
    prose = entry(exit=2, needs=[{**need, "resolve": "save it as UTF-8"}])
    assert "do: save it as UTF-8</div>" in pages(prose)[0]


def test_each_fault_of_a_file_has_a_line() -> None:
    """What to do says that; a name with a line break begins none."""
    need = {"code": "bad_config", "message": "first\nsecond", "resolve": "correct every line", "exit": 2}
    for text in pages(entry(exit=2, needs=[need])):
        assert "first<br>second" in text
    for text in pages(entry(exit=2, needs=[{**need, "code": "X"}])):
        assert "first\\nsecond" in text


def test_a_name_of_any_length_makes_no_larger_page() -> None:
    """Of a group, and of whatever a message repeats."""
    long = "g" * 20_000
    group: dict[str, Any] = {
        "group": long, "standing": "behind", "code": None, "reason": long, "resolve": f"`onceover x {long}`",
        "partitions": 0, "counts": {}, "lag": 2, "behind_offsets": 7, "positions": [],
    }  # fmt: skip
    groups = {
        "error": None, "giving": "east", "receiving": "west", "groups": [group], "more": 0, "remarks": [],
        "counts": {"needs_somebody": 0, "undecided": 0, "behind": 1, "in_place": 0},
    }  # fmt: skip
    need = {"code": "X", "message": long, "resolve": f"`onceover x {long}`", "exit": 3}
    note = {"object": long, "code": "X", "message": long, "resolve": long}
    told = entry(exit=3, groups=groups, needs=[need], notes=[note], drills_error=long)
    overview, page = pages(told)
    assert len(overview) + len(page) < 60_000
    assert 'command">onceover x' not in page, "half a command is none"


def test_an_old_headline_says_so_itself() -> None:
    """How long a run runs was true then; nothing is in colour as if it were now."""
    run = {**entry()["run"], "state": "running", "since_s": 1_435.0, "host": "vm"}
    told = entry(state="copying", run=run, partitions=[partition(0)])
    bad = entry("bad", exit=3)
    look = Look([told, bad], 360.0)
    page = one_flow(look, told, (), LINKS)
    assert "<h1>orders, 6 min ago: copying</h1>" in page
    assert "What they said then: running for 23 min 55 s on vm" in page
    topic = one_topic(look, told, "orders", LINKS)
    assert "<h1>orders, 6 min ago: copied</h1>" in topic
    overview = all_flows(look, {}, LINKS)
    assert "<h1>6 min ago: 1 of 2 flows needs somebody</h1>" in overview
    assert "was in order" in overview and ">in order<" not in overview
    for text in (page, topic, overview):
        assert re.search(r'<header class="[A-Z]+ old">', text) and re.search(
            r'<main class="[a-z ]*old">', text
        )
    for text in (*pages(told), one_topic(Look([told], 3.0), told, "orders", LINKS)):
        assert ' old"' not in text and "ago:" not in re.findall("<h1.*</h1>", text)[0]


def test_a_page_that_holds_still_says_when_it_has_become_old() -> None:
    """By time alone: it runs no script."""
    look = Look([entry()], 1.0)
    held = all_flows(look, {}, LINKS, still=True)
    assert re.search(r'<h1>[^<]*<span class="held"> \(more than half a minute ago\)</span></h1>', held)
    assert "animation: held 0s 30s forwards" in held and STALE_S == 30
    assert 'class="held"' not in all_flows(look, {}, LINKS)


def test_a_run_that_is_over_says_how() -> None:
    """What has ended well is not called stopped; its partitions say that nobody copies, and why."""
    run = {**entry()["run"], "since_s": 60.0, "ended": "done"}
    row = partition(0, "idle", 3)
    for state, word in (("ended", "ended"), ("failed", "failed"), ("gone", "driver gone")):
        told = entry(state="stopped", run={**run, "state": state}, partitions=[row])
        overview, page = pages(told)
        assert f">{word}</td>" in overview and f"<h1>orders: {word}</h1>" in page
        assert "nobody copies: " in page
    need = {"code": "DRIVER_GONE", "message": "gone", "resolve": "`onceover replicate orders`", "exit": 3}
    told = entry(exit=3, state="stopped", run={**run, "state": "gone"}, partitions=[row], needs=[need])
    assert "<b>DRIVER_GONE</b> nobody copies: gone: no sign of life for 1 min" in pages(told)[1]


def test_data_docs_stand_beside_the_report() -> None:
    """Where both are at hand."""
    audit = {
        "verdict": "PASS", "at_ms": 0, "summary": "all is well", "report": "/x/report.html", "host": "vm",
        "since": "start", "topics": [], "sample": None, "age_s": 1.0, "failed": None,
    }  # fmt: skip
    links = Links("/", {}, {("orders", "audit"): "/onceover/audits/orders/r1/report.html"})
    told = entry(audit=audit, data_docs="data_docs/index.html")
    address = 'href="/onceover/audits/orders/r1/data_docs/index.html"'
    assert address in one_flow(Look([told], 1.0), told, (), links)
    for here, at_hand in (({**told, "data_docs": None}, links), (told, LINKS)):
        assert "Data Docs" not in one_flow(Look([here], 1.0), here, (), at_hand)


def test_each_partition_says_which_lane_copies_it() -> None:
    """One that is not taken in has none."""
    told = entry(partitions=[partition(0, lane=7), partition(1, "not_enrolled", 3, lane=None)])
    page = one_flow(Look([told], 1.0), told, (), LINKS)
    assert re.search(r'<td class="num">7</td><td class="word">caught up</td>', page)
    assert re.search(r'<td class="num">-</td><td class="word">not enrolled</td>', page)


@pytest.mark.parametrize("name", ["a b", "<b>", "x" * 250, "..%2f", "ö"])
def test_an_address_of_no_topic_says_so(name: str) -> None:
    """Not that an audit was removed."""
    told = entry()
    text = one_topic(Look([told], 1.0), told, name, LINKS)
    assert re.match(TOPIC, name) and "can be no topic" in text and 'href="../../orders"' in text
    assert len(one_topic(Look([told], 1.0), told, "x" * 100_000, LINKS)) < 20_000


def test_a_time_that_is_none_costs_no_page() -> None:
    """Whoever may write to the journal may date what they write."""
    drill = {"drill": "d1", "mode": "rehearsal", "began_ms": 10**17, "result": "PASS", "rto_s": 1.0, **LOST}
    told = entry(drills={"drills": [drill], "rpo": RPO})
    assert "no time" in one_flow(Look([told], 1.0), told, (), LINKS)

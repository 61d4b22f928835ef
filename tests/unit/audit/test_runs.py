"""The folders of audits: what is evidence stays, what is empty goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceover.audit.report.runs import earlier_audits, is_served, keep_answer, run_folder, runs_folder
from onceover_airflow.telling.pages import FOLDERS, page_link, pages_folder


def earlier(runs: Path, count: int) -> list[Path]:
    """Make the folders of audits of another year, each with a report."""
    made = [runs / f"20200101T0000{number:02d}Z-abcdef" for number in range(count)]
    for folder in made:
        folder.mkdir(parents=True)
        (folder / "report.html").write_text("evidence")
    return made


def write_and_fail(runs: Path) -> None:
    """Run an audit that fails late."""
    with run_folder(runs) as home:
        (home / "data_docs").mkdir()
        raise ValueError("late")


def test_audit_that_fails_before_it_writes_leaves_nothing(tmp_path: Path) -> None:
    """However it ends, and however often: the evidence of real ones stays."""
    kept = earlier(tmp_path, 9)
    for error in [ValueError, KeyboardInterrupt] * 10:
        with pytest.raises(error), run_folder(tmp_path):
            raise error
    assert sorted(tmp_path.iterdir()) == kept


def test_what_was_written_before_a_failure_stays(tmp_path: Path) -> None:
    """It is what one looks at to find out why."""
    with pytest.raises(ValueError, match="late"):
        write_and_fail(tmp_path / "audit")
    (home,) = (tmp_path / "audit").iterdir()
    assert [each.name for each in home.iterdir()] == ["data_docs"]


def test_ten_audits_are_kept_and_the_oldest_go_first(tmp_path: Path) -> None:
    """The one that is made now is the tenth."""
    old = earlier(tmp_path, 12)
    with run_folder(tmp_path) as home:
        (home / "report.html").write_text("new")
    assert sorted(tmp_path.iterdir()) == [*old[3:], home]


def test_empty_folder_makes_no_room_and_goes_with_what_is_older_than_all_kept(tmp_path: Path) -> None:
    """Those of killed audits, old and new, and the one of an audit that runs now."""
    old = earlier(tmp_path, 10)
    long_gone, running = tmp_path / "20200101T000000Z-ffffff", tmp_path / "20300101T000000Z-ffffff"
    long_gone.mkdir()
    running.mkdir()
    with run_folder(tmp_path) as home:
        (home / "report.html").write_text("new")
    assert sorted(tmp_path.iterdir()) == [*old[1:], home, running]


def test_contents_of_records_lie_where_nothing_is_served_from(tmp_path: Path) -> None:
    """Whoever may log in to Airflow may read reports, and no records; the address is all that it takes."""
    home = tmp_path / "flights"
    shown, hidden = (runs_folder(home, show_payload=payload) for payload in (False, True))
    assert pages_folder(tmp_path, "audits", "flights", "1-a").parent == shown
    assert not hidden.is_relative_to(shown)
    assert page_link(tmp_path, str(shown / "1-a" / "report.html"))
    assert page_link(tmp_path, str(hidden / "1-a" / "report.html")) == ""


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_the_web_server_shows_is_known(tmp_path: Path, kind: str) -> None:
    """By whatever path it is named; all else below ONCEOVER_HOME, and elsewhere, is nobody's."""
    folder = pages_folder(tmp_path, kind, "flights", "1-a")
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    for path in (folder / "r.html", tmp_path / "link" / "r.html", folder / ".." / "1-b" / "r.html"):
        assert is_served(path, tmp_path)
    for path in (tmp_path / "r.html", tmp_path / "flights" / "audit-payload" / "r.html", Path("/tmp/r.html")):
        assert not is_served(path, tmp_path)


def test_earlier_audits_are_told_and_linked(tmp_path: Path) -> None:
    """The newest first, without damaged ones and those of older releases; no link leads from elsewhere."""
    told = {"verdict": "FAIL", "started_ms": 5, "since": "start", "topics": [], "complete": True, "more": 1}
    old, damaged, *others = earlier(tmp_path, 4)
    for number, made in enumerate(others):
        keep_answer(made, {**told, "started_ms": number})
    (damaged / "answer.json").write_text("{")
    now = tmp_path / "20990101T000000Z-abcdef"
    now.mkdir()
    found = earlier_audits(now, now / "report.html")
    assert [(each["run"], each["started_ms"]) for each in found] == [(others[1].name, 1), (others[0].name, 0)]
    assert found[0]["link"] == f"../{others[1].name}/report.html"
    assert earlier_audits(now, tmp_path.parent / "x.html")[0]["link"] is None
    assert earlier_audits(old, old / "report.html") == []

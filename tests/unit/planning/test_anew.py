"""Behind a seizure nothing is done that was not shown, and nothing is told that was not either."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onceover.errors import NeedsOperator
from onceover.planning.anew import agreed_anew
from onceover.planning.approval import ApprovablePlan, Approval
from onceover.planning.journal import Journal
from onceover.planning.operation import Caller
from onceover.planning.plan import Change, Refusal

FIRST, SECOND = (Change("position", f"t:{number}", 5, 9, "asked for", "skip", 4) for number in range(2))
REFUSED = Refusal("t:1", "PROGRESS_EXISTS", "it stands at 7", "add `--replace`")
PLAN = ApprovablePlan(operation="seed", flow="f", changes=(FIRST, SECOND))


class Scene:
    def __init__(self, tmp_path: Path) -> None:
        self.shown: list[object] = []
        self._path = tmp_path / "journal"

    def agreed(self, now: ApprovablePlan, *, whole: bool = False) -> ApprovablePlan:
        approved, caller = Approval.of(PLAN.items), Caller(self.shown.append)
        with Journal(self._path) as journal:
            return agreed_anew(PLAN, now, approved, journal, caller, whole=whole)

    @property
    def planned(self) -> list[str]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [json.loads(line)["change"]["object"] for line in lines]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize("whole", [True, False])
def test_the_same_plan_is_not_shown_again(scene: Scene, whole: bool) -> None:
    now = replace(PLAN, computed_at_ms=1)
    assert scene.agreed(now, whole=whole) is now
    assert (scene.shown, scene.planned) == ([], [])


@pytest.mark.parametrize("whole", [True, False])
def test_what_has_become_less_is_shown_and_written_down_again(scene: Scene, whole: bool) -> None:
    """An earlier try has done the rest."""
    now = replace(PLAN, changes=(SECOND,))
    assert scene.agreed(now, whole=whole) is now
    assert (scene.shown, scene.planned) == ([now], ["t:1"])


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_not_shown_is_not_done(scene: Scene, whole: bool) -> None:
    now = replace(PLAN, changes=(FIRST, replace(SECOND, object="t:2")))
    with pytest.raises(NeedsOperator, match=r"^the running copy is fenced .* t:2 \(skip\), which") as raised:
        scene.agreed(now, whole=whole)
    assert raised.value.code == "PLAN_CHANGED"
    assert (scene.shown, scene.planned) == ([], [])


def test_what_is_refused_by_now_is_left_out_where_a_part_is_wanted(scene: Scene) -> None:
    now = replace(PLAN, changes=(FIRST,), refused=(REFUSED,))
    assert scene.agreed(now) is now
    assert (scene.shown, scene.planned) == ([now], ["t:0"])


def test_and_keeps_everything_from_being_done_where_only_the_whole_is(scene: Scene) -> None:
    now = replace(PLAN, changes=(FIRST,), refused=(REFUSED,))
    with pytest.raises(NeedsOperator, match=r"seed is not possible any more.*t:1: it stands at 7") as raised:
        scene.agreed(now, whole=True)
    assert raised.value.code == "PLAN_CHANGED"
    assert (scene.shown, scene.planned) == ([], [])


def test_a_refusal_that_is_new_is_shown_also_beside_the_same_changes(scene: Scene) -> None:
    """The command ends with its exit code, and would have said nowhere why."""
    now = replace(PLAN, refused=(REFUSED,))
    assert scene.agreed(now) is now
    assert scene.shown == [now]


def test_one_whose_numbers_have_moved_on_is_not(scene: Scene) -> None:
    first, now = (replace(PLAN, refused=(replace(REFUSED, message=f"it stands at {n}"),)) for n in (7, 8))
    with Journal(Path("nowhere")) as journal:
        approved = Approval.of(first.items)
        assert agreed_anew(first, now, approved, journal, Caller(scene.shown.append), whole=False) is now
    assert scene.shown == []

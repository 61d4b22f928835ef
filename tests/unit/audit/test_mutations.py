"""The checker is checked: every mutation of a correct pair is found, and named for what it is."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.raw.mutations import MUTATIONS, Content, correct_pair, mutate_randomly
from tests.unit.audit.judging import judge, told

SEEDS = range(100)


def test_nothing_is_said_of_a_correct_pair() -> None:
    """The base of all mutations is right, also cut into stretches."""
    pair = correct_pair(random.Random(1))
    assert judge(pair) == []
    assert judge(pair, borders=(20, 40)) == []


@pytest.mark.parametrize("place", [0, 7, 25, 52])
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_every_mutation_is_found_and_named(name: str, place: int) -> None:
    """Each class alone: at the beginning, in the middle, and near the end."""
    pair = correct_pair(random.Random(place))
    expected = MUTATIONS[name](pair, 1, place)
    assert told(pair, judge(pair)) == Counter(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_mutations_are_all_found_and_named(seed: int) -> None:
    """One to six of them in one topic; the seed says which."""
    rng = random.Random(seed)
    pair = correct_pair(rng)
    expected = mutate_randomly(rng, pair, rng.randrange(1, 7))
    assert told(pair, judge(pair)) == Counter(expected)


@pytest.mark.parametrize("seed", SEEDS[:30])
def test_counts_add_up_where_the_source_holds_equal_records(seed: int) -> None:
    """With twins a name may be one of several right ones; what is too few and too many is not."""
    rng = random.Random(seed)
    pair = correct_pair(rng, twins=True)
    for _ in range(rng.randrange(1, 12)):
        partition = rng.randrange(len(pair.target))
        contents = pair.target[partition]
        rng.choice([_remove, _double, _shuffle])(rng, contents)
    findings = told(pair, judge(pair))
    missing, extra = 0, 0
    for source, target in zip(pair.source, pair.target, strict=True):
        missing += (Counter(source) - Counter(target)).total()
        extra += (Counter(target) - Counter(source)).total()
    kinds = Counter(str(each.kind) for each in findings.elements())
    assert kinds["LOST"] == missing
    assert kinds["REPEATED"] == extra
    assert (findings.total() == 0) == (pair.source == pair.target)
    assert set(kinds) <= {"LOST", "REPEATED", "REORDERED"}


def _remove(rng: random.Random, contents: list[Content]) -> None:
    del contents[rng.randrange(len(contents))]


def _double(rng: random.Random, contents: list[Content]) -> None:
    contents.insert(rng.randrange(len(contents)), rng.choice(contents))


def _shuffle(rng: random.Random, contents: list[Content]) -> None:
    begin = rng.randrange(len(contents))
    run = contents[begin : begin + 5]
    rng.shuffle(run)
    contents[begin : begin + 5] = run


@pytest.mark.parametrize("border", [3, 17, 30, 44])
def test_a_copy_elsewhere_is_named_across_stretches(border: int) -> None:
    """What one stretch calls surplus is a copy of what another holds."""
    pair = correct_pair(random.Random(border))
    source = pair.source[0]
    pair.target[0] += source[:3]
    found = told(pair, judge(pair, borders=(border,)))
    assert Counter(str(each.kind) for each in found.elements()) == {"REPEATED": 3}
    assert {each.source for each in found} == {(0, 0), (0, 1), (0, 2)}


def test_a_record_moved_far_is_named_once() -> None:
    """Lost in one stretch, surplus in another: one record that is out of order."""
    pair = correct_pair(random.Random(3))
    contents = pair.target[2]
    contents.insert(50, contents.pop(5))
    # The second border is where the target is again as far as the source.
    found = told(pair, judge(pair, borders=(5, 6, 50, 51)))
    assert Counter(str(each.kind) for each in found.elements())["LOST"] == 0
    assert {each.source for each in found} >= {(2, 5)}


def test_a_topic_copied_twice_is_all_repeats() -> None:
    """Each record once too often, none lost."""
    pair = correct_pair(random.Random(9))
    pair.target = [contents * 2 for contents in pair.target]
    found = told(pair, judge(pair))
    assert Counter(str(each.kind) for each in found.elements()) == {"REPEATED": 180}
    assert {each.source for each in found} == {(p, index) for p in range(3) for index in range(60)}


def test_an_empty_target_has_lost_everything() -> None:
    """And an empty source makes everything surplus."""
    pair = correct_pair(random.Random(9))
    pair.target = [[] for _ in pair.target]
    assert Counter(str(each.kind) for each in judge(pair)) == {"LOST": 180}
    pair = correct_pair(random.Random(9))
    pair.source = [[] for _ in pair.source]
    pair.aborted = [[] for _ in pair.aborted]
    assert Counter(str(each.kind) for each in judge(pair)) == {"PHANTOM": 180}


def test_swapped_partitions_are_misrouted_records() -> None:
    """Every record is there, in the wrong partition."""
    pair = correct_pair(random.Random(4))
    pair.target[0], pair.target[1] = pair.target[1], pair.target[0]
    found = told(pair, judge(pair))
    assert Counter(str(each.kind) for each in found.elements()) == {"MISROUTED": 120}


@pytest.mark.parametrize("name", ["key", "value", "timestamp", "header-value"])
def test_a_field_altered_everywhere_is_named_everywhere(name: str) -> None:
    """Nothing corresponds any more, and still each record is known by its other fields."""
    pair = correct_pair(random.Random(6))
    expected = [each for index in range(60) for each in MUTATIONS[name](pair, 0, index)]
    assert told(pair, judge(pair)) == Counter(expected)


def test_the_same_loss_in_every_place_is_found() -> None:
    """No place is special: beginning, end, beside another loss."""
    for index in range(0, 59, 3):
        pair = correct_pair(random.Random(2), partitions=1)
        del pair.target[0][index : index + 2]
        found = told(pair, judge(pair))
        assert [(str(each.kind), each.source) for each in found] == [
            ("LOST", (0, index)),
            ("LOST", (0, index + 1)),
        ]

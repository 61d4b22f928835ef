"""How groups stand, for `status`: what the plan says, bounded, and who needs somebody first."""

from __future__ import annotations

from onceover.errors import Retriable
from onceover.groups.decide import Allowed, Direction, PartitionFacts
from onceover.groups.plan import GroupFacts, GroupView, plan_groups
from onceover.groups.standing import describe_standing, groups_standing, unknown_standing
from onceover.model import TopicPartition
from onceover.wire.offsetlookup import NotCovered, Translated, Translation


def facts(number: int, committed: int, current: int | None, translation: Translation) -> PartitionFacts:
    tp = TopicPartition("orders", number)
    return PartitionFacts(
        giving=tp,
        receiving=tp,
        committed=committed,
        giving_end=100,
        translation=translation,
        current=current,
        end=200,
    )


def group(name: str, *partitions: PartitionFacts, **changes: object) -> GroupFacts:
    return GroupFacts(name=name, type="classic", partitions=partitions, **changes)  # pyrefly: ignore[bad-argument-type]


def view(*groups: GroupFacts) -> GroupView:
    return GroupView("f", Direction.FAILOVER, "east", "west", groups, (), 1_000_000)


TRANSLATED = Translated(60)


def test_each_group_has_both_positions_and_one_word() -> None:
    """The worst of its partitions; a reason where there is one."""
    told = groups_standing(
        plan_groups(
            view(
                group("new", facts(0, 50, None, TRANSLATED)),
                group(
                    "mixed",
                    facts(0, 50, None, TRANSLATED),
                    facts(1, 50, None, NotCovered(None, None, "gone")),
                ),
                group("there", facts(0, 50, 60, TRANSLATED), there_state="stable", there_type="classic"),
                group("dark", error=Retriable("its coordinator is away")),
            ),
            Allowed(),
        )
    )
    by_name = {entry["group"]: entry for entry in told["groups"]}
    assert by_name["new"]["standing"] == "behind" and by_name["new"]["behind_offsets"] == 60
    assert by_name["new"]["positions"][0]["committed"] == 50
    assert by_name["new"]["positions"][0]["translated"] == 60
    assert (by_name["there"]["standing"], by_name["there"]["code"]) == ("undecided", "HAS_MEMBERS")
    assert by_name["mixed"]["standing"] in ("undecided", "needs_somebody") and by_name["mixed"]["code"]
    assert "coordinator is away" in by_name["dark"]["reason"]
    assert sum(told["counts"].values()) == 4
    line = describe_standing(told, "f")
    assert "1 behind" in line and "HAS_MEMBERS" in line and "`onceover groups plan f`" in line


def test_size_is_bounded_and_who_needs_somebody_is_shown() -> None:
    """Of a thousand groups with a hundred partitions each."""
    partitions = [facts(number, 50, None, TRANSLATED) for number in range(100)]
    many = [group(f"g{number}", *partitions) for number in range(1000)]
    told = groups_standing(plan_groups(view(*many, group("zz", error=Retriable("away"))), Allowed()))
    assert told["groups"][0]["group"] == "zz"
    assert (len(told["groups"]), told["more"]) == (50, 951)
    assert max(len(entry["positions"]) for entry in told["groups"]) == 5
    assert told["counts"]["behind"] == 1000


def test_nothing_and_nobody_knows() -> None:
    """Each is a word of its own."""
    assert describe_standing(groups_standing(plan_groups(view(), Allowed())), "f") == "none"
    assert describe_standing(unknown_standing(Retriable("away").as_dict()), "f") == "not known: away"

"""A worker is counted once, whatever it is called; one that nobody named is never taken for a named one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onceover.connectors.workers.membership import Membership, endpoints, membership_of

KNOWN = {"a": ["10.0.0.1"], "b": ["10.0.0.2"], "alias-of-a": ["10.0.0.1"], "both": ["10.0.0.1", "10.0.0.2"]}


def seen(named: Sequence[str], members: Sequence[str]) -> Membership:
    """Compare addresses as this network resolves them; a host alone means port 8083 over http."""

    def placed(hosts: Sequence[str]) -> list[tuple[str, frozenset[tuple[str, int]]]]:
        urls = [host if "//" in host else f"http://{host}:8083" for host in hosts]
        return [(url, endpoints(url, lambda host, _: KNOWN.get(host, []))) for url in urls]

    return membership_of(placed(named), placed(members))


@pytest.mark.parametrize(
    ("named", "members"),
    [
        (["a", "b"], ["b", "a"]),
        (["alias-of-a", "b"], ["a", "10.0.0.2"]),
        (["unknown", "A"], ["a", "unknown"]),
        (["http://a:80"], ["http://a"]),
    ],
)
def test_workers_by_whatever_name_are_those_of_the_group(named: list[str], members: list[str]) -> None:
    """Nothing differs, nothing is left in doubt."""
    found = seen(named, members)
    assert not (found.differs or found.doubtful or found.twice)


@pytest.mark.parametrize(
    ("named", "members"),
    [
        (["a"], ["a", "b"]),
        (["a", "b"], ["a"]),
        (["a", "c"], ["a"]),
        (["both"], ["a", "b"]),
        (["a"], []),
        (["http://a:8084"], ["a", "b"]),
    ],
)
def test_missing_and_additional_workers_are_seen(named: list[str], members: list[str]) -> None:
    """Of another port it is another worker; a name for several is the name of none."""
    assert seen(named, members).differs


@pytest.mark.parametrize(("one", "other"), [("a", "alias-of-a"), ("a", "a"), ("both", "b"), ("x", "X")])
def test_worker_under_two_names_is_seen(one: str, other: str) -> None:
    """Also where a name means it among others, or nobody knows the name."""
    assert len(seen([one, other], ["a", "b"]).twice) == 1


def test_workers_that_cannot_be_told_apart_are_a_doubt() -> None:
    """Two addresses of a proxy may lead to one worker; with one of each there is no other."""
    assert seen(["proxy-1", "proxy-2"], ["a", "b"]).doubtful == ("http://a:8083", "http://b:8083")
    assert not seen(["proxy-1", "proxy-2"], ["a", "b"]).differs
    assert seen(["a", "proxy"], ["a", "b"]).doubtful == ("http://b:8083",)
    assert seen(["proxy"], ["a"]).doubtful == ()

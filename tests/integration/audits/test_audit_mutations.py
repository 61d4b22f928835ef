"""The checker is checked on real brokers: what a faulty copy leaves behind is found and named.

Here one fault of each class in one audit; every other one, and random ones with ranges cut wrongly, in the
soak. The pure comparer is put through all of them in ``tests/unit/audit``.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from onceover.audit.model import Side
from tests.support.flows.replica import Replica
from tests.support.raw.mutations import MUTATIONS, ONE_OF_EACH, correct_pair, mutate_randomly
from tests.support.raw.writtenpair import audit_pair, write_pair

_PLACE = 11


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(ONE_OF_EACH, id="one-of-each"),
        pytest.param(sorted(set(MUTATIONS) - set(ONE_OF_EACH)), id="the-others", marks=pytest.mark.soak),
    ],
)
def test_every_fault_is_found_and_named(replica: Replica, names: list[str]) -> None:
    """Two partitions for each fault; the second stays right, unless a record strays into it."""
    pair = correct_pair(random.Random(7), partitions=2 * len(names), records=36)
    expected = Counter(
        finding for index, name in enumerate(names) for finding in MUTATIONS[name](pair, 2 * index, _PLACE)
    )
    written = write_pair(replica, pair)

    compared = audit_pair(replica, written)

    findings = [finding for each in compared for finding in each.findings]
    assert written.told(pair, findings) == expected
    faulty = {each.target for each in expected} | {each.source[0] for each in expected if each.source}
    for number, each in enumerate(compared):
        right = number not in faulty
        assert (each.verified_to == each.source_to) == right, number
        assert each.records(Side.SOURCE) == len(pair.source[number])
        assert each.records(Side.TARGET) == len(pair.target[number])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_random_faults_are_found_whatever_the_map_proposes(replica: Replica, seed: int) -> None:
    """Many faults in one topic, read in ranges whose borders are wrong now and then."""
    rng = random.Random(seed)
    pair = correct_pair(rng, partitions=8, records=120)
    expected = Counter(mutate_randomly(rng, pair, 20))
    written = write_pair(replica, pair)

    compared = audit_pair(replica, written, rng)

    findings = [finding for each in compared for finding in each.findings]
    assert written.told(pair, findings) == expected

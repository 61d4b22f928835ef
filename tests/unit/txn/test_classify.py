"""Every code of the table has a row here, written down by hand and not read from the code."""

from __future__ import annotations

import pytest

from onceover.txn.classify import Action, Api, classify

COORDINATED = [
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS,
    Api.ADD_OFFSETS,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
    Api.OFFSET_FETCH,
    Api.LIST_GROUPS,
    Api.OFFSET_COMMIT,
    Api.OFFSET_DELETE,
]
LED = [
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.OFFSET_FOR_LEADER_EPOCH,
    Api.DESCRIBE_PRODUCERS,
]
REPEATS = [Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS, Api.ADD_OFFSETS, Api.TXN_OFFSET_COMMIT, Api.END_TXN]

PRODUCES = [Api.PRODUCE, Api.PRODUCE_IDEMPOTENT]
INSIDE = [Api.ADD_PARTITIONS, Api.ADD_OFFSETS, *PRODUCES, Api.TXN_OFFSET_COMMIT, Api.END_TXN]

ROWS: list[tuple[list[Api], list[int], Action]] = [
    (list(Api), [0], Action.OK),
    (list(Api), [29, 30, 31, 33, 34, 53, 54, 58, 65, 66], Action.UNAUTHORIZED),
    (COORDINATED, [15, 16], Action.REFRESH_AND_RETRY),
    ([*COORDINATED, Api.FIND_COORDINATOR], [7, 14, 89], Action.RETRY),
    ([Api.FIND_COORDINATOR], [15], Action.RETRY),
    ([Api.FIND_COORDINATOR], [16], Action.REFRESH_AND_RETRY),
    (REPEATS, [51], Action.RETRY),
    ([Api.PRODUCE], [19, 51], Action.RETRY),
    # repeated under the same sequence: appended once, whatever became of the first answer
    ([Api.PRODUCE_IDEMPOTENT], [7, 19, 20], Action.RETRY),
    (PRODUCES, [-1, 2, 10, 18, 32, 43, 76, 87], Action.CONTENT),
    (PRODUCES, [17, 44], Action.OPERATOR),
    # moved leaders, timeouts, appended but not replicated, broken logs
    ([Api.PRODUCE], [7, 20], Action.RESET),
    (PRODUCES, [5, 6, 9, 56, 74, 75], Action.RESET),
    ([Api.PRODUCE_IDEMPOTENT], [51], Action.RESET),
    # gap, duplicate, fenced or timed out, wrong state, unknown producer, not in the transaction
    (
        INSIDE,
        [45, 46, 47, 48, 49, 52, 55, 59, 90, 120],
        Action.RESET,
    ),
    ([Api.INIT_PRODUCER_ID], [47, 90], Action.RESET),
    ([Api.INIT_PRODUCER_ID], [50], Action.OPERATOR),
    (
        [Api.ADD_PARTITIONS, *PRODUCES, Api.TXN_OFFSET_COMMIT, Api.OFFSET_FETCH, Api.FETCH, Api.METADATA],
        [3, 100, 103],
        Action.MISSING,
    ),
    ([Api.OFFSET_COMMIT, Api.OFFSET_DELETE], [3, 100, 103], Action.MISSING),
    ([Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH, Api.DESCRIBE_PRODUCERS], [3], Action.REFRESH_AND_RETRY),
    ([Api.TXN_OFFSET_COMMIT, Api.OFFSET_COMMIT], [12, 22, 25, 82], Action.OPERATOR),
    ([Api.OFFSET_FETCH], [88], Action.RETRY),
    (LED, [5, 6, 8, 9, 56, 72, 74, 75], Action.REFRESH_AND_RETRY),
    (LED, [7, 78, 89], Action.RETRY),
    ([Api.FETCH], [1], Action.OUT_OF_RANGE),
    ([Api.FETCH], [2], Action.OPERATOR),
    ([Api.FETCH], [70, 71, 106], Action.REFRESH_AND_RETRY),
    ([Api.METADATA], [17], Action.OPERATOR),
]
CASES = {(api, code): action for apis, codes, action in ROWS for api in apis for code in codes}
ALL_CODES = range(-1, 140)


@pytest.mark.parametrize(("apis", "codes", "action"), ROWS)
def test_known_codes_have_their_action(apis: list[Api], codes: list[int], action: Action) -> None:
    for api in apis:
        for code in codes:
            assert classify(api, code) is action, (api, code)


@pytest.mark.parametrize("api", list(Api))
def test_all_other_codes_reset_inside_a_transaction_and_are_fatal_elsewhere(api: Api) -> None:
    """Together with the rows above this fixes the answer for every code there is."""
    fallback = Action.RESET if api in INSIDE else Action.FATAL
    wrong = [code for code in ALL_CODES if (api, code) not in CASES and classify(api, code) is not fallback]
    assert wrong == []


def test_rows_do_not_contradict_each_other() -> None:
    assert len(CASES) == sum(len(apis) * len(codes) for apis, codes, _ in ROWS)


def test_concurrent_transactions_on_a_first_end_resets() -> None:
    assert classify(Api.END_TXN, 51, first_end_txn=True) is Action.RESET
    assert classify(Api.END_TXN, 51, first_end_txn=False) is Action.RETRY
    assert classify(Api.ADD_OFFSETS, 51, first_end_txn=True) is Action.RETRY


def test_an_abort_without_a_transaction_has_its_wish_and_a_commit_resets() -> None:
    assert classify(Api.END_TXN, 48, committing=False) is Action.NOTHING_OPEN
    assert classify(Api.END_TXN, 48, committing=True) is Action.RESET
    assert classify(Api.PRODUCE, 48, committing=False) is Action.RESET


def test_no_error_is_ever_ok() -> None:
    assert [
        (api, code) for api in Api for code in ALL_CODES if code and classify(api, code) is Action.OK
    ] == []

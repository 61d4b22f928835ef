"""What a cluster answers about each of many topics or partitions: errors take nothing from the others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from onceover.backoff import Deadline
from onceover.errors import OnceoverError, Retriable

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Each(Generic[K, V]):
    """Answers by what was asked about.

    Args:
        found: what was answered; what does not exist is in neither.
        failed: why there is no answer: ``Retriable`` where it may come (``NotNow`` when a broker said so),
            ``UsageError`` where a right is missing, another error where asking again is no use.
    """

    found: dict[K, V] = field(default_factory=dict)
    failed: dict[K, OnceoverError] = field(default_factory=dict)

    def whole(self) -> dict[K, V]:
        """Return all answers.

        Raises:
            OnceoverError: the first failure, if there is one.
        """
        for error in self.failed.values():
            raise error
        return self.found


def answers_in_time(
    retry: Callable[[Callable[[], None], Deadline], None],
    wanted: Collection[K],
    ask: Callable[[list[K]], Each[K, V]],
    deadline: Deadline,
) -> Each[K, V]:
    """Ask about each; those that may be answered later are asked about again, together, until a deadline.

    Args:
        retry: of the cluster that is asked: runs an attempt again while it raises ``Retriable``.
        ask: asks about some of them once.
    """
    each: Each[K, V] = Each()

    def attempt() -> None:
        waiting = [one for one in wanted if one not in each.found and not _is_final(each.failed.get(one))]
        answered = ask(waiting)
        each.found.update(answered.found)
        for one in waiting:
            each.failed.pop(one, None)
        each.failed.update(answered.failed)
        for error in each.failed.values():
            if not _is_final(error):
                raise error

    try:
        retry(attempt, deadline)
    except Retriable as error:
        unknown = (one for one in wanted if one not in each.found)
        each.failed.update((one, each.failed.get(one, error)) for one in unknown)
    return each


def _is_final(error: OnceoverError | None) -> bool:
    return error is not None and not isinstance(error, Retriable)

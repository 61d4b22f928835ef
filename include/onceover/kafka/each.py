"""What a cluster answers about each of many topics or partitions: errors take nothing from the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from onceover.errors import OnceoverError

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

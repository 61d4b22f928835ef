"""Whether the workers that are named are those of the group. Pure.

Invariant: a worker that nobody named, or that is counted twice in place of another, is never taken for one
that was asked: it may run tasks that nobody has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

Endpoints = frozenset[tuple[str, int]]
_PORTS: Final = {"http": 80, "https": 443}


def endpoints(url: str, resolve: Callable[[str, int], Sequence[str]]) -> Endpoints:
    """Return where a REST address leads: its host by name and by each of its network addresses, and its port.

    Args:
        resolve: returns a host's network addresses; none where it is not known.
    """
    parts = urlsplit(url)
    host, port = (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0)
    return frozenset((each, port) for each in (host, *resolve(host, port)))


@dataclass(frozen=True)
class Membership:
    """Named workers beside the members of their group.

    Args:
        named: addresses as they were named; ``members`` as the workers advertise themselves.
        twice: pairs of named addresses that lead to one worker.
        unnamed: members to which no named address leads.
        strangers: named addresses that lead to no member, as far as members say where they are.
        several: named addresses that lead to more than one member.
    """

    named: tuple[str, ...]
    members: tuple[str, ...]
    twice: tuple[tuple[str, str], ...]
    unnamed: tuple[str, ...]
    strangers: tuple[str, ...]
    several: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """True when some worker is certainly not named, or a name certainly not a worker of the group."""
        return len(self.unnamed) != len(self.strangers) or bool(self.several)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Members that may be meant by the strangers: behind a proxy, or in a network of their own.

        One worker and one name leave no doubt.
        """
        return self.unnamed if len(self.members) > 1 else ()


def membership_of(
    named: Sequence[tuple[str, Endpoints]], members: Sequence[tuple[str, Endpoints]]
) -> Membership:
    """Compare where named addresses lead with where the group's members say that they are."""
    pairs = [(one, other) for n, one in enumerate(named) for other in named[n + 1 :]]
    led = {url: [member for member, at in members if at & places] for url, places in named}
    return Membership(
        named=tuple(url for url, _ in named),
        members=tuple(url for url, _ in members),
        twice=tuple((one[0], other[0]) for one, other in pairs if one[1] & other[1]),
        unnamed=tuple(url for url, at in members if not any(at & places for _, places in named)),
        strangers=tuple(url for url, _ in named if not led[url]),
        several=tuple(url for url, _ in named if len(led[url]) > 1),
    )

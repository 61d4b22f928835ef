"""Where the names of brokers lead: a name may have several addresses, of which some may be nobody's now.

Behind one name (a headless service, DNS in turn) there may be several brokers, and the first that takes a
connection may be frozen, or refuse everybody: so each address is a place of its own.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from onceover.backoff import Patience
from onceover.errors import OnceoverError
from onceover.kafka.link.channel import Address
from onceover.kafka.link.connection import ConnectionLost, no_address


class Place(NamedTuple):
    """One address that a broker's name has.

    Args:
        broker: as it is called.
        at: what is connected to.
        of: how many the name has.
        problem: why it has none.
    """

    broker: Address
    at: Address
    of: int = 1
    problem: OnceoverError | None = None


def places(
    brokers: Iterable[Address], patience: Patience, shunned: Callable[[Address], bool]
) -> Iterator[Place]:
    """Yield where to try brokers: one address of each name, the other ones, and last those to be shunned.

    So of a frozen broker with two addresses the second is waited for when everybody else was asked. A name is
    looked up once, when it has its turn.

    Args:
        patience: spent where the resolver does not know a name.
        shunned: tells it of an address, asked again where all else is tried.
    """
    later: list[Place] = []
    for broker in brokers:
        found = _places_of(broker, patience)
        fresh = next((place for place in found if not shunned(place.at)), None)
        later += [place for place in found if place is not fresh]
        if fresh is not None:
            yield fresh
    while later:
        later.sort(key=lambda place: shunned(place.at))
        yield later.pop(0)


def _places_of(broker: Address, patience: Patience) -> list[Place]:
    began_s = time.monotonic()
    try:
        found = socket.getaddrinfo(broker.host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        patience.spend(time.monotonic() - began_s)
        lost = ConnectionLost(f"no connection to {broker}: {error}")
        lost.__cause__ = error
        return [Place(broker, broker, problem=lost)]
    except ValueError as error:
        # Python's resolver, asked for what can be no host: nothing has left this machine.
        refused = no_address(broker)
        refused.__cause__ = error
        return [Place(broker, broker, problem=refused)]
    hosts = list(dict.fromkeys(str(at[0]) for *_, at in found))
    return [Place(broker, Address(host, broker.port), len(hosts)) for host in hosts]

"""What a client has still to deliver: waiting for it, and letting go of it.

Invariant: what a client says of itself is raised as its own error. ``flush`` goes on calling callbacks behind
a fatal error (another producer has the id), with that error on its way up: what comes out then is the
interpreter's SystemError (confluent-kafka 2.16). ``poll`` returns with the error first.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaException, Producer

from onceover.kafka.backoff import Deadline

# Shorter than what the client cuts into parts of its own: then one error ends one call.
_POLL_S: Final = 0.1
_PURGE_S: Final = 1.0


def await_delivered(producer: Producer, timeout_s: float) -> int:
    """Wait until every record is delivered or given up; return how many are left after the time.

    Raises:
        KafkaException: a fatal error of the client, such as that it was fenced.
    """
    deadline = Deadline(timeout_s)
    while len(producer) and not deadline.passed:
        producer.poll(_POLL_S)
    return len(producer)


def let_go(producer: Producer) -> None:
    """Forget what is not delivered: it must not be sent behind anybody's back.

    Whoever closes has heard what there was to hear, or raises it: nothing is raised here.
    """
    producer.purge()
    deadline = Deadline(_PURGE_S)
    while len(producer) and not deadline.passed:
        with suppress(KafkaException):
            producer.poll(_POLL_S)

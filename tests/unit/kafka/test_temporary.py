"""Which of librdkafka's errors are tried again: those that are known to pass, and no other."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from onceover.kafka.librdkafka import is_temporary

PASSES = {
    "a broker is away": KafkaError._TRANSPORT,
    "no answer in time": KafkaError._TIMED_OUT,
    "not delivered in time": KafkaError._MSG_TIMED_OUT,
    "the controller moves": KafkaError.NOT_CONTROLLER,
    "the leader moves": KafkaError.NOT_LEADER_FOR_PARTITION,
    "replicas are short": KafkaError.NOT_ENOUGH_REPLICAS,
    "throttled": KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
STAYS = {
    "a wrong password": KafkaError.SASL_AUTHENTICATION_FAILED,
    "refused by our own side": KafkaError._AUTHENTICATION,
    "a bad certificate": KafkaError._SSL,
    "a policy": KafkaError.POLICY_VIOLATION,
    "too large": KafkaError.MSG_SIZE_TOO_LARGE,
    "no right": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "a topic that is not there": KafkaError.UNKNOWN_TOPIC_OR_PART,
    "an unknown error of the broker": KafkaError.UNKNOWN,
    "what nobody has heard of": 9999,
}


@pytest.mark.parametrize("code", PASSES.values(), ids=PASSES)
def test_outage_is_temporary(code: int) -> None:
    """It was seen to pass by itself."""
    assert is_temporary(KafkaError(code))


@pytest.mark.parametrize("code", STAYS.values(), ids=STAYS)
def test_refusal_and_the_unknown_are_not(code: int) -> None:
    """Asked again, the answer is the same."""
    assert not is_temporary(KafkaError(code))

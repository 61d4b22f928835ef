"""Of the library of Kafka's messages its clients are loaded by nobody who does not want them."""

from __future__ import annotations

import subprocess
import sys

import pytest

_QUIET = """
import sys
import onceover.kafka.cluster
assert not {"kafka.admin", "kafka.consumer", "kafka.net.connection"} & sys.modules.keys()
"""
_ASKED = """
import kafka, kafka.net
assert not hasattr(kafka, "nothing") and not hasattr(kafka.net, "nothing")
from kafka import KafkaConsumer, TopicPartition
from kafka.net import KafkaConnection
assert kafka.KafkaConsumer is KafkaConsumer and KafkaConsumer.__module__.startswith("kafka.consumer")
assert kafka.__version__ and kafka.net.KafkaConnection is KafkaConnection
"""
_BEFORE = """
import kafka
before = kafka
import onceover.kafka.cluster
assert kafka is before and type(kafka).__name__ == "module"
"""
_AT_ONCE = """
import threading, kafka
seen = []
threads = [threading.Thread(target=lambda: seen.append(kafka.KafkaProducer)) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
assert len(seen) == 8 and len(set(seen)) == 1
"""


@pytest.mark.parametrize("script", [_QUIET, _QUIET + _ASKED, _BEFORE + _ASKED, _QUIET + _AT_ONCE])
def test_clients_are_there_for_who_asks(script: str) -> None:
    """A handler may have one of its own; whoever has loaded the library before keeps it."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_python_without_assertions_asks_no_broker() -> None:
    """One of the library's reads a byte of each answer: without it what follows is read as something else."""
    script = """
from onceover.errors import UsageError
from onceover.kafka.cluster import LiveCluster
from onceover.config.clients.resolve import ClientConfig
try:
    LiveCluster(ClientConfig("east", {"bootstrap.servers": "127.0.0.1:1"})).open()
except UsageError as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "PYTHON_OPTIMIZED", done.stderr

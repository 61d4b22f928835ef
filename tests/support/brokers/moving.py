"""Two clusters that clients know by an address which a switchover leads elsewhere, in one of two ways."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from onceover_lab.embed.kafka import KafkaCluster, start_all
from onceover_lab.embed.security import Security, make_certificates
from tests.support.brokers.clusters import ClusterFactory
from tests.support.brokers.guarded import Pair
from tests.support.brokers.tcpswitch import TcpSwitch
from tests.support.drills.movers import KAFKA_PYTHON, LIBRDKAFKA


@dataclass(frozen=True)
class Moving:
    """Both clusters, and the addresses before them.

    Args:
        name: what clients know (``bootstrap.servers``).
        listener: where the source sends them from there. The same where all of it goes through one address,
            which then is where the target sends them, too.
        authority: the certificate that signed those of both: whoever moves has to trust both.
    """

    pair: Pair
    security: Security
    name: TcpSwitch
    listener: TcpSwitch
    authority: Path

    @property
    def through(self) -> bool:
        """True where brokers tell clients the switch's address as their own."""
        return self.name is self.listener

    def lead_to(self, cluster: KafkaCluster) -> None:
        """Lead the name to a cluster; the source's own listener stays as it is, if it has one."""
        self.name.lead_to(cluster.nodes[0].ports.client)

    def reset(self) -> None:
        """Lead everybody to the source."""
        self.listener.lead_to(self.pair[0].nodes[0].ports.client)
        self.lead_to(self.pair[0])

    @property
    def inside(self) -> tuple[dict[str, str], dict[str, str]]:
        """How the flow, and who looks on, reach source and target: not by the switch."""
        source, target = self.pair
        return {"bootstrap.servers": source.internal_bootstrap}, {
            "bootstrap.servers": target.internal_bootstrap
        }

    def settings(self, library: str) -> dict[str, Any]:
        """Return with which settings applications with that library reach the name."""
        if library == KAFKA_PYTHON:
            return self.kafka_python
        return self.librdkafka if library == LIBRDKAFKA else self.java

    @property
    def librdkafka(self) -> dict[str, str]:
        """Their keys for librdkafka."""
        user, word = self.security.username, self.security.password
        login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        return {
            **login,
            "sasl.username": user,
            "sasl.password": word,
            "ssl.ca.location": str(self.authority),
            "bootstrap.servers": self.name.address,
        }

    @property
    def java(self) -> dict[str, str]:
        """Their keys for Java."""
        keys = dict(self.librdkafka)
        user, word = keys.pop("sasl.username"), keys.pop("sasl.password")
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": keys.pop("ssl.ca.location")}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            **keys,
            **trusted,
            "sasl.jaas.config": f'{module} required username="{user}" password="{word}";',
        }

    @property
    def kafka_python(self) -> dict[str, Any]:
        """Their keys for kafka-python."""
        return {
            "bootstrap_servers": [self.name.address],
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.authority),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.security.username,
            "sasl_plain_password": self.security.password,
        }


@contextmanager
def moving_clusters(home: Path, *, through: bool = False, config: Mapping[str, str] = {}) -> Iterator[Moving]:
    """Start them; everybody is led to the source.

    Args:
        through: brokers of both tell clients the switch's address as their own. Otherwise clients only
            bootstrap by the switch, and talk to addresses of each cluster's own.
    """
    factory, security = ClusterFactory(home), Security("PLAIN", authorizer=True)

    def starting(name: str, advertised: list[int] | None) -> Callable[[], KafkaCluster]:
        return partial(factory, name, security=security, advertised=advertised, config=config)

    make_certificates(home / "moving-source" / "tls")
    shutil.copytree(home / "moving-source" / "tls", home / "moving-target" / "tls")
    with ExitStack() as stack:
        stack.callback(factory.close)
        listener = stack.enter_context(TcpSwitch())
        name = listener if through else stack.enter_context(TcpSwitch())
        there = [listener.port] if through else None
        source, target = start_all(
            [starting("moving-source", [listener.port]), starting("moving-target", there)]
        )
        moving = Moving((source, target), security, name, listener, source.ca_path)
        moving.reset()
        yield moving

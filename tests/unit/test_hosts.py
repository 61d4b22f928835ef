"""What names a host, wherever one is named: what a resolver chokes on is a fault of the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceover.config import values
from onceover.config.clients.keys import ALLOWED
from onceover.config.connect.connectfile import _address
from onceover.config.faults import Invalid
from onceover.hosts import is_host, is_http_address

HOSTS = [
    "localhost",
    "kafka-0.kafka.svc.cluster.local",
    "kafka.example.com.",
    "my_broker",
    "10.0.0.1",
    "[::1]",
    "a" * 63,
    ".".join(["a" * 61] * 4),
]
# A variable that is set to nothing leaves the first three.
NO_HOSTS = [
    "kafka..example.com",
    ".kafka.example.com",
    "",
    ".",
    "a" * 64,
    f"kafka.{'a' * 64}.com",
    ".".join(["a" * 61] * 5),
    "kafka example",
    "käfka",
    "::1",
]


@pytest.mark.parametrize("host", HOSTS)
def test_host_is_accepted_wherever_one_is_named(host: str) -> None:
    """The near miss of all that is refused."""
    assert is_host(host)
    assert ALLOWED["bootstrap.servers"].check(f"{host}:9092,{host}:9093") == f"{host}:9092,{host}:9093"
    assert values.master(f"spark://{host}:7077,{host}:7078") == f"spark://{host}:7077,{host}:7078"
    assert (
        values.master(f"k8s://https://{host}:6443/k8s/clusters/c-1")
        == f"k8s://https://{host}:6443/k8s/clusters/c-1"
    )
    assert values.master(f"k8s://{host}") == f"k8s://{host}"
    assert is_http_address(f"https://{host}:443/token")


@pytest.mark.parametrize("host", NO_HOSTS)
def test_what_no_resolver_takes_is_refused_wherever_a_host_is_named(host: str) -> None:
    """Before anything is asked: Python's resolver answers some of it with an error that is no outage's."""
    assert not is_host(host)
    for check in (
        lambda: ALLOWED["bootstrap.servers"].check(f"a:1,{host}:9092"),
        lambda: values.master(f"spark://{host}:7077"),
        lambda: values.master(f"spark://a:7077,{host}:7077"),
        lambda: values.master(f"k8s://https://{host}:6443"),
        lambda: ALLOWED["sasl.oauthbearer.token.endpoint.url"].check(f"https://{host}/token"),
        lambda: _address(1, f"http://{host}:8083"),
    ):
        with pytest.raises(Invalid):
            check()


@pytest.mark.parametrize(
    "address",
    [
        "http://h:6443",
        "HTTP://h:6443",
        "https://u:pw@h:6443",
        "u@h",
        "https://h/?a=b",
        "https://h/#a",
        "//h",
        "\\\\h",
    ],
)
def test_kubernetes_is_talked_to_over_tls_and_without_a_login_in_its_address(address: str) -> None:
    """The secret of a job's processes goes through its API; an address is an argument, which `ps` shows."""
    with pytest.raises(Invalid):
        values.master(f"k8s://{address}")


@given(st.text("ab.-_:1[]", max_size=12) | st.text("a.", max_size=300))
def test_a_resolver_is_given_nothing_that_it_chokes_on(host: str) -> None:
    """What is accepted can be encoded as a host name is."""
    if is_host(host) and not host.startswith("["):
        assert host.encode("idna") is not None


@pytest.mark.parametrize("url", ["http://[::1", "http://a:x/", "http://a:99999/", "http://a b/", "http:///x"])
def test_address_that_is_none_is_refused_in_our_words(url: str) -> None:
    """Whatever Python's own parser says of it."""
    assert not is_http_address(url)
    with pytest.raises(Invalid):
        ALLOWED["sasl.oauthbearer.token.endpoint.url"].check(url)

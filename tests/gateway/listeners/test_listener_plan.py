"""Listeners as Kafka's settings name them."""

import pytest

from kledger.gateway.listeners.listener_plan import (
    ListenerMistake,
    ListenerPlan,
    SecurityProtocol,
    is_loopback,
    plan_listeners,
)


def test_listeners_keep_their_order_and_take_the_protocol_of_their_name() -> None:
    plans = plan_listeners("SASL_SSL://:9094, PLAINTEXT://127.0.0.1:0,SSL://[::1]:9093")
    assert [
        ("SASL_SSL", SecurityProtocol.SASL_SSL, "0.0.0.0", 9094),
        ("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 0),
        ("SSL", SecurityProtocol.SSL, "::1", 9093),
    ] == [(each.name, each.protocol, each.host, each.port) for each in plans]


def test_names_of_ones_own_have_the_protocol_of_the_map_and_their_advertised_address() -> None:
    (plan,) = plan_listeners(
        "outside://0.0.0.0:9094",
        advertised="OUTSIDE://broker.example:443",
        protocol_map="INSIDE:PLAINTEXT, outside:sasl_ssl",
    )
    assert plan == ListenerPlan(
        name="OUTSIDE",
        protocol=SecurityProtocol.SASL_SSL,
        host="0.0.0.0",
        port=9094,
        advertised_host="broker.example",
        advertised_port=443,
    )


@pytest.mark.parametrize(
    ("listeners", "settings", "message"),
    [
        ("SSL:9092", {}, "listeners: expected NAME://HOST:PORT, got 'SSL:9092'"),
        ("SSL://h:65536", {}, "listeners: expected NAME://HOST:PORT"),
        ("SSL://h:1,,", {}, "listeners: expected NAME://HOST:PORT, got ''"),
        ("SSL://h:1,ssl://h:2", {}, "listeners: expected each name once, got 'SSL' again"),
        ("SSL://h:1,PLAINTEXT://h:1", {}, "listeners: expected each port once"),
        ("MINE://h:1", {}, "listener.security.protocol.map: expected a protocol for .*'MINE'"),
        ("MINE://h:1", {"protocol_map": "MINE:TLS"}, "map: expected NAME:PROTOCOL with .*SASL_SSL"),
        ("MINE://h:1", {"protocol_map": "MINE:SSL,MINE:SSL"}, "map: expected each name once"),
        ("SSL://h:1", {"advertised": "SASL_SSL://h:1"}, "advertised.listeners: expected names of"),
        ("SSL://h:1", {"advertised": "SSL://:1"}, "advertised.listeners: SSL: expected a host"),
        ("SSL://h:1", {"advertised": "SSL://0.0.0.0:1"}, "advertised.listeners: SSL: expected a"),
        (",".join(f"L{n}://h:{n}" for n in range(1, 34)), {}, "listeners: expected at most 32"),
    ],
)
def test_a_mistake_is_named(listeners: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ListenerMistake, match=message):
        plan_listeners(listeners, **settings)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("broker.example", False),
        ("", False),
    ],
)
def test_loopback_is_distinguished_from_other_addresses(host: str, expected: bool) -> None:
    assert expected == is_loopback(host)

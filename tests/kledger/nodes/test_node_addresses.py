"""Where nodes listen, and the settings in which they differ from their server."""

import pytest

from kledger.gateway.listeners.listener_plan import plan_listeners
from kledger.nodes.node_addresses import (
    NodesMistake,
    advertised_peers,
    node_changes,
    plan_node_addresses,
)
from kledger.workers.worker_plan import ListenAddresses

HOST = "127.0.0.1"


def ports(
    listening: ListenAddresses, nodes: int, peers: int = 0
) -> dict[tuple[str, int | None], int]:
    planned = plan_node_addresses(listening, (HOST, peers), nodes).items()
    return {(point.listener, point.node): port for point, (_, port) in planned}


def test_own_ports_are_behind_the_one_that_all_share() -> None:
    listening = ListenAddresses(kafka=(HOST, 9092), native=(HOST, 9192), admin=(HOST, 9292))
    assert {
        ("kafka", None): 9092,
        ("kafka", 1): 9093,
        ("kafka", 2): 9094,
        ("native", None): 9192,
        ("native", 1): 9193,
        ("native", 2): 9194,
        ("admin", None): 9292,
        ("admin", 1): 9293,
        ("admin", 2): 9294,
        ("peers", 1): 9393,
        ("peers", 2): 9394,
    } == ports(listening, 2, peers=9392)


def test_port_0_is_any_port_of_every_node() -> None:
    found = ports(ListenAddresses(kafka=(HOST, 0), native=(HOST, 0), admin=(HOST, 0)), 3)
    assert 15 == len(found)
    assert {0} == set(found.values())


@pytest.mark.parametrize(
    ("listening", "peers", "mistake"),
    [
        (
            ListenAddresses(kafka=(HOST, 65_534)),
            0,
            (
                "kafka: expected a port of at most 65533, as 2 nodes need the ports behind it, got "
                "65534"
            ),
        ),
        (
            ListenAddresses(kafka=(HOST, 9092), advertised_port=65_535),
            0,
            (
                "advertised port of kafka: expected a port of at most 65533, as 2 nodes need the "
                "ports behind it, got 65535"
            ),
        ),
        (ListenAddresses(kafka=(HOST, 9092)), 65_534, "peers: expected a port of at most 65533"),
        (
            ListenAddresses(kafka=(HOST, 9092), native=("::1", 9094)),
            0,
            (
                "native: port 9094 is taken by kafka of node 2; with 2 nodes the ports of kafka "
                "and native are P to P \\+ 2, those of peers P \\+ 1 to P \\+ 2"
            ),
        ),
        (
            ListenAddresses(kafka=(HOST, 9092), admin=(HOST, 9093)),
            0,
            "admin: port 9093 is taken by kafka of node 1",
        ),
        (ListenAddresses(kafka=(HOST, 9092)), 9092, "peers of node 1: port 9093 is taken by kafka"),
    ],
)
def test_ports_that_cannot_be_are_mistakes(
    listening: ListenAddresses, peers: int, mistake: str
) -> None:
    with pytest.raises(NodesMistake, match=mistake):
        plan_node_addresses(listening, (HOST, peers), 2)


def test_a_node_has_its_own_ports_and_number() -> None:
    listening = ListenAddresses(
        kafka=(HOST, 9092), native=("::1", 9192), admin=(HOST, 9292), advertised_port=19_092
    )
    bound = plan_node_addresses(listening, (HOST, 0), 2)
    assert {
        "kafka.node_id": 2,
        "kafka.advertised_port": 19_094,
        "server.kafka": f"{HOST}:9094",
        "server.native": "[::1]:9194",
        "server.admin": f"{HOST}:9294",
    } == node_changes(2, listening, bound)


def test_each_of_several_listeners_has_ports_of_its_own() -> None:
    others = plan_listeners(
        "PLAINTEXT://:9092,SSL://[::1]:9192", advertised="SSL://broker.example:443"
    )
    listening = ListenAddresses(kafka=(HOST, 9999), others=others)
    bound = plan_node_addresses(listening, (HOST, 0), 2)
    changes = node_changes(1, listening, bound)
    assert "PLAINTEXT://0.0.0.0:9093,SSL://[::1]:9193" == changes["kafka.listener_addresses"]
    assert "SSL://broker.example:444" == changes["kafka.advertised_addresses"]
    assert "server.kafka" not in changes


def test_advertised_peer_port_is_behind_the_port_of_the_settings() -> None:
    assert ("h", 9395) == advertised_peers(("h", 9392), 3)
    assert ("h", 0) == advertised_peers(("h", 0), 3)

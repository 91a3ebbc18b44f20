"""Where workers listen, and the settings in which they differ."""

import pytest

from kledger.gateway.listeners.listener_plan import plan_listeners
from kledger.workers.worker_plan import (
    ListenAddresses,
    ListeningPoint,
    WorkersMistake,
    plan_addresses,
    plan_worker,
)

HOST = "127.0.0.1"


def ports(listeners: ListenAddresses, count: int) -> dict[tuple[str, int | None], int]:
    planned = plan_addresses(listeners, count).items()
    return {(point.listener, point.worker): port for point, (_, port) in planned}


def settings_of(index: int, listeners: ListenAddresses, count: int = 2) -> dict[str, object]:
    """Return the settings of one worker on a folder `d`, as if all ports were free."""
    _, changes = plan_worker(
        index,
        listeners,
        plan_addresses(listeners, count),
        count=count,
        made_with=count,
        node_id=5,
        folder="d",
    )
    return changes


def test_own_ports_are_behind_the_one_that_all_share() -> None:
    assert {
        ("kafka", None): 9092,
        ("kafka", 0): 9093,
        ("kafka", 1): 9094,
        ("native", None): 9192,
        ("native", 0): 9193,
        ("native", 1): 9194,
        ("admin", 0): 9292,
        ("admin", 1): 9293,
    } == ports(ListenAddresses(kafka=(HOST, 9092), native=(HOST, 9192), admin=(HOST, 9292)), 2)


def test_port_0_is_any_port_of_every_worker() -> None:
    listeners = ListenAddresses(kafka=(HOST, 0), native=(HOST, 0), admin=(HOST, 0))
    found = ports(listeners, 2)
    assert 8 == len(found)
    assert {0} == set(found.values())


def test_each_of_several_listeners_has_ports_of_its_own() -> None:
    others = plan_listeners("PLAINTEXT://:9092,SSL://[::1]:9192")
    listeners = ListenAddresses(kafka=(HOST, 9999), others=others)
    assert {
        ListeningPoint("PLAINTEXT", None): ("0.0.0.0", 9092),
        ListeningPoint("PLAINTEXT", 0): ("0.0.0.0", 9093),
        ListeningPoint("SSL", None): ("::1", 9192),
        ListeningPoint("SSL", 0): ("::1", 9193),
    } == plan_addresses(listeners, 1)


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        (
            ListenAddresses(kafka=(HOST, 9092), native=(HOST, 9093)),
            "native: port 9093 is taken by kafka of worker 0; with 2 workers the ports of kafka ",
        ),
        (
            ListenAddresses(kafka=(HOST, 9092), admin=("::1", 9093)),
            "admin of worker 0: port 9093 is taken by kafka of worker 0; ",
        ),
        (
            ListenAddresses(kafka=(HOST, 65_534)),
            "kafka: workers need the ports up to 65536, expected at most 65535",
        ),
        (
            ListenAddresses(kafka=(HOST, 0), advertised_port=65_534),
            "advertised port of kafka: workers need the ports up to 65536",
        ),
        (
            ListenAddresses(kafka=None, admin=(HOST, 65_535)),
            "admin: workers need the ports up to 65536",
        ),
    ],
)
def test_ports_that_cannot_be_are_refused(listeners: ListenAddresses, message: str) -> None:
    with pytest.raises(WorkersMistake) as refused:
        plan_addresses(listeners, 2)
    assert str(refused.value).startswith(message)


def test_settings_of_a_worker() -> None:
    listeners = ListenAddresses(kafka=(HOST, 9092), native=("::1", 9192), admin=(HOST, 9292))
    assert {
        "kafka.node_id": 6,
        "server.data": "d/worker-1",
        "server.kafka": "127.0.0.1:9094",
        "server.native": "[::1]:9194",
        "server.admin": "127.0.0.1:9293",
    } == settings_of(1, listeners)


def test_advertised_ports_count_like_the_ports() -> None:
    listeners = ListenAddresses(kafka=(HOST, 9092), advertised_port=19_092)
    assert 19_093 == settings_of(0, listeners)["kafka.advertised_port"]
    assert 19_094 == settings_of(1, listeners)["kafka.advertised_port"]


def test_listeners_keep_their_names_and_advertised_hosts() -> None:
    others = plan_listeners(
        "INSIDE://[::]:9092,OUTSIDE://:9192",
        advertised="OUTSIDE://broker.example:443,INSIDE://[fd00::1]:0",
        protocol_map="INSIDE:PLAINTEXT,OUTSIDE:SSL",
    )
    assert {
        "kafka.node_id": 6,
        "server.data": "d/worker-1",
        "kafka.listener_addresses": "INSIDE://[::]:9094,OUTSIDE://0.0.0.0:9194",
        "kafka.advertised_addresses": "INSIDE://[fd00::1]:0,OUTSIDE://broker.example:445",
    } == settings_of(1, ListenAddresses(kafka=(HOST, 9092), others=others))


def test_worker_knows_the_addresses_that_all_share() -> None:
    listeners = ListenAddresses(kafka=(HOST, 0), native=(HOST, 0), admin=(HOST, 0))
    planned = enumerate(plan_addresses(listeners, 3), 40_000)
    bound = {point: (HOST, port) for port, point in planned}
    identity, changes = plan_worker(
        2, listeners, bound, count=3, made_with=2, node_id=1, folder="/data"
    )
    assert (2, 3, 2, "/data") == (
        identity.index, identity.count, identity.made_with, identity.folder,
    )  # fmt: skip
    assert {"kafka": (HOST, 40_000), "native": (HOST, 40_004)} == identity.bootstrap
    assert f"{HOST}:40003" == changes["server.kafka"]

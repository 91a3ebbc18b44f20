"""Leaders that are lost or have moved, as clients see them."""

import pytest

from kledger.gateway.brokers import AdvertisedAddress, BrokerAddress, OneBroker
from kledger.gateway.config import GatewayConfig
from kledger.gateway.metadata.shown_leaders import (
    LISTED_MOVE_MS,
    NO_LEADER,
    RECENT_MOVE_MS,
    moved_leader_id,
    shown_brokers,
    shown_leaders,
)
from kledger.gateway.peer import Peer

LIBRDKAFKA = Peer("127.0.0.1", software_name="librdkafka", software_version="2.10.0")
OLD_LIBRDKAFKA = Peer("127.0.0.1", software_name="librdkafka", software_version="2.9.0")
JAVA = Peer("127.0.0.1", software_name="apache-kafka-java")
LISTENER = AdvertisedAddress("PLAINTEXT", "a", 1)
INT32_MAX = 2**31 - 1


class Moving(OneBroker):
    """Brokers of which some have moved or are lost."""

    silent_ids = {2, 3}

    def moves_within(self, milliseconds: int) -> dict[int, int]:
        """Two have moved."""
        return {1: 5, 2: 6}


@pytest.mark.parametrize("peer", [LIBRDKAFKA, JAVA])
def test_brokers_that_stay_are_shown_as_they_are(peer: Peer) -> None:
    assert {} == shown_leaders(OneBroker(GatewayConfig()), peer)


def test_only_librdkafka_sees_another_id_and_all_see_that_a_broker_is_lost() -> None:
    brokers = Moving(GatewayConfig())
    for other in (JAVA, OLD_LIBRDKAFKA):
        assert {2: NO_LEADER, 3: NO_LEADER} == shown_leaders(brokers, other)
    moved = moved_leader_id(1, 5)
    assert {1: moved, 2: NO_LEADER, 3: NO_LEADER} == shown_leaders(brokers, LIBRDKAFKA)


def test_librdkafka_gets_a_moved_broker_under_the_ids_of_its_last_two_moves_as_well() -> None:
    brokers = Moving(GatewayConfig(node_id=1))
    own = BrokerAddress(1, "a", 1)
    moved = [BrokerAddress(moved_leader_id(1, epoch), "a", 1) for epoch in (4, 5)]
    assert [own, *moved] == list(shown_brokers(brokers, LISTENER, LIBRDKAFKA))
    for other in (JAVA, OLD_LIBRDKAFKA):
        assert [own] == list(shown_brokers(brokers, LISTENER, other))


@pytest.mark.parametrize(
    ("passed_ms", "leads", "is_listed"),
    [
        (RECENT_MOVE_MS - 1, True, True),
        (RECENT_MOVE_MS, False, True),
        (LISTED_MOVE_MS - 1, False, True),
        (LISTED_MOVE_MS, False, False),
    ],
)
def test_a_broker_is_listed_under_an_id_for_longer_than_it_leads_under_it(
    passed_ms: int, leads: bool, is_listed: bool
) -> None:
    """librdkafka finds no leader whose id it has in its cache, but not in its list of brokers."""

    class MovedBefore(OneBroker):
        def moves_within(self, milliseconds: int) -> dict[int, int]:
            return {1: 5} if passed_ms < milliseconds else {}

    brokers = MovedBefore(GatewayConfig(node_id=1))
    moved = moved_leader_id(1, 5)
    assert leads == (moved in shown_leaders(brokers, LIBRDKAFKA).values())
    listed = {each.broker_id for each in shown_brokers(brokers, LISTENER, LIBRDKAFKA)}
    assert is_listed == (moved in listed)


def test_moves_of_all_brokers_have_ids_of_their_own() -> None:
    ids = {moved_leader_id(broker, epoch) for broker in range(1, 100) for epoch in range(50, 300)}
    assert 99 * 250 == len(ids)
    assert INT32_MAX >= moved_leader_id((1 << 20) - 1, 255)

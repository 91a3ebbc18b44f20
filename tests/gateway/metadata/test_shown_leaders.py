"""Leaders that are lost or have moved, as clients see them."""

import pytest

from kledger.gateway.brokers import BrokerAddress, OneBroker
from kledger.gateway.config import GatewayConfig
from kledger.gateway.metadata.shown_leaders import (
    NO_LEADER,
    moved_leader_id,
    shown_brokers,
    shown_leaders,
)
from kledger.gateway.peer import Peer

LIBRDKAFKA = Peer("127.0.0.1", software_name="librdkafka")
JAVA = Peer("127.0.0.1", software_name="apache-kafka-java")
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
    assert {2: NO_LEADER, 3: NO_LEADER} == shown_leaders(brokers, JAVA)
    moved = moved_leader_id(1, 5)
    assert {1: moved, 2: NO_LEADER, 3: NO_LEADER} == shown_leaders(brokers, LIBRDKAFKA)


def test_a_moved_broker_is_listed_under_both_ids() -> None:
    one, two = BrokerAddress(1, "a", 1), BrokerAddress(2, "b", 2)
    found = list(shown_brokers([one, two], {1: 77, 2: NO_LEADER}))
    assert [one, BrokerAddress(77, "a", 1), two] == found


def test_moves_of_all_brokers_have_ids_of_their_own() -> None:
    ids = {moved_leader_id(broker, epoch) for broker in range(1, 100) for epoch in range(50, 300)}
    assert 99 * 250 == len(ids)
    assert INT32_MAX >= moved_leader_id((1 << 20) - 1, 255)

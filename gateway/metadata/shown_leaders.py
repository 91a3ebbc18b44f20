"""Shown leaders: which broker a client sees as the leader of a partition.

Rule: the broker that leads it, with two exceptions while nodes move between servers. A broker that
seems to be lost leads nothing until it is taken over: clients request metadata again and again,
instead of connecting to the old address and waiting there for another request timeout. A broker
that has moved is shown to librdkafka under another id, with the same address: librdkafka doubles
its wait after each connection to an id, up to 10 s (`reconnect.backoff.max.ms`), whether the
address is new or not, but connects at once to an id that it has not seen. The broker stays in the
list under its own id as well, as groups have their coordinator by that.
Must not know: requests, topics.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kledger.gateway.brokers import BrokerAddress, Brokers
from kledger.gateway.peer import Peer

NO_LEADER: Final = -1
RECENT_MOVE_MS: Final = 60_000
"""How long a broker that has moved has another id; a wait of librdkafka has passed by then."""
_MOVED_IDS: Final = 3 << 29
"""No broker has an id as large as this."""
_BROKER_BITS: Final = 20
_MOVES: Final = 256
"""So many moves of a broker have different ids."""


def shown_leaders(brokers: Brokers, peer: Peer) -> Mapping[int, int]:
    """Return the brokers that a client sees under another id as leaders, or as none."""
    shown: dict[int, int] = {}
    if (moves := brokers.moves_within(RECENT_MOVE_MS)) and peer.is_librdkafka:
        shown = {each: moved_leader_id(each, epoch) for each, epoch in moves.items()}
    return shown | dict.fromkeys(brokers.silent_ids, NO_LEADER)


def moved_leader_id(broker_id: int, leader_epoch: int) -> int:
    """Return the id of a leader that has moved, in the leader epoch that began with the move."""
    return _MOVED_IDS + (leader_epoch % _MOVES << _BROKER_BITS) + broker_id


def shown_brokers(
    brokers: Iterable[BrokerAddress], shown: Mapping[int, int]
) -> Iterator[BrokerAddress]:
    """Yield brokers, each also under the id by which a client sees it as a leader."""
    for each in brokers:
        yield each
        leader_id = shown.get(each.broker_id, NO_LEADER)
        if leader_id != NO_LEADER:
            yield each._replace(broker_id=leader_id)

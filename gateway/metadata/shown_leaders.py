"""Shown leaders: which broker a client sees as the leader of a partition.

Rule: the broker that leads it, with two exceptions while nodes move between servers. A broker that
seems to be lost leads nothing until it is taken over: clients request metadata again and again,
instead of connecting to the old address and waiting there for another request timeout. A broker
that has moved is shown to librdkafka from 2.10 on under another id, with the same address: it
doubles its wait after each connection to an id, up to 10 s (`reconnect.backoff.max.ms`), whether
the address is new or not, but connects at once to an id that it has not seen. The broker stays in
the list under its own id as well, as groups have their coordinator by that, and under the other one
for as long as librdkafka may have that as a leader in its cache: it finds no leader that is not
listed.
Must not know: requests, topics.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kledger.gateway.brokers import AdvertisedAddress, BrokerAddress, Brokers
from kledger.gateway.peer import Peer

NO_LEADER: Final = -1
RECENT_MOVE_MS: Final = 60_000
"""How long a broker that has moved leads under another id; a wait of librdkafka has passed by
then."""
LISTED_MOVE_MS: Final = RECENT_MOVE_MS + 900_000
"""How long it is listed under that id: `metadata.max.age.ms` of librdkafka longer."""
_MOVED_IDS: Final = 3 << 29
"""No broker has an id as large as this."""
_BROKER_BITS: Final = 20
_MOVES: Final = 256
"""So many moves of a broker have different ids."""


def shown_leaders(brokers: Brokers, peer: Peer) -> Mapping[int, int]:
    """Return the brokers that a client sees under another id as leaders, or as none."""
    moves = _moves_seen(brokers, peer, RECENT_MOVE_MS)
    shown = {each: moved_leader_id(each, epoch) for each, epoch in moves.items()}
    return shown | dict.fromkeys(brokers.silent_ids, NO_LEADER)


def moved_leader_id(broker_id: int, leader_epoch: int) -> int:
    """Return the id of a leader that has moved, in the leader epoch that began with the move."""
    return _MOVED_IDS + (leader_epoch % _MOVES << _BROKER_BITS) + broker_id


def shown_brokers(
    brokers: Brokers, listener: AdvertisedAddress, peer: Peer
) -> Iterator[BrokerAddress]:
    """Yield the brokers, each also under the ids by which a client may have it as a leader.

    Those are the ids of its last two moves, as it often moves back soon.
    """
    moves = _moves_seen(brokers, peer, LISTED_MOVE_MS)
    for each in brokers.all(listener):
        yield each
        if (epoch := moves.get(each.broker_id)) is not None:
            for moved_in in (epoch - 1, epoch):
                yield each._replace(broker_id=moved_leader_id(each.broker_id, moved_in))


def _moves_seen(brokers: Brokers, peer: Peer, milliseconds: int) -> Mapping[int, int]:
    """Return the moves that lead to other ids for a client; mostly there are none."""
    moves = brokers.moves_within(milliseconds)
    return moves if moves and peer.knows_brokers_by_id else {}

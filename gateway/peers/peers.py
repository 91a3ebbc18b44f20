"""Peers: the other brokers of a cluster, and the connections to each.

Rule: each kind of request has its own connection. Adding a partition to a transaction waits until
the previous transaction has all its markers; if a marker queued behind that, it could wait for
itself. A marker that was sent is not sent again while its connection lasts: a late copy could end a
later transaction of the same epoch.
Must not know: leaders, coordinators.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from kledger.gateway.peers.peer_link import Connect, PeerLink, PeerUnavailable
from kledger.gateway.peers.peer_questions import PeerQuestions
from kledger.gateway.peers.peer_requests import (
    INCLUSIONS_VERSION,
    MARKERS_VERSION,
    Inclusion,
    Marker,
    inclusion_codes,
    inclusion_groups,
    inclusions_request,
    marker_codes,
    marker_groups,
    markers_request,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnResponse
from kledger.gateway.wire.messages.k27_write_txn_markers import WriteTxnMarkersResponse
from kledger.runtime.logs import RateLimitedLog

if TYPE_CHECKING:
    from kledger.runtime.clock import Clock
    from kledger.runtime.tasks import Supervisor
    from kledger.runtime.timers import Timers

MARKERS_WAIT_MS: Final = 1_000
"""How long the end of a transaction waits for a peer; afterwards its coordinator retries."""
INCLUSIONS_TIMEOUT_MS: Final = 10_000
"""How long a batch or an offset waits for the verification of its transaction; then its client
retries. A connection without an answer for so long is replaced."""
WARNINGS_PER_SECOND: Final = 1


class Peers:
    """The peers by broker id."""

    def __init__(
        self,
        connect_to: Callable[[int], Connect],
        *,
        clock: "Clock",
        timers: "Timers",
        supervisor: "Supervisor",
    ) -> None:
        """Prepare; a peer is connected to by the first request to it.

        Args:
            connect_to: returns what connects to a broker.
            clock: of this broker.
            timers: likewise.
            supervisor: runs requests.
        """
        self._connect_to = connect_to
        self._timers = timers
        self._supervisor = supervisor
        self._log = RateLimitedLog(logging.getLogger(__name__), WARNINGS_PER_SECOND, clock)
        self._peers: dict[int, BrokerPeer] = {}

    def peer(self, broker_id: int) -> "BrokerPeer":
        """Return a peer."""
        found = self._peers.get(broker_id)
        if found is None:
            found = self._peers[broker_id] = BrokerPeer(
                f"broker {broker_id}",
                self._connect_to(broker_id),
                timers=self._timers,
                supervisor=self._supervisor,
                log=self._log,
            )
        return found

    def reconnect(self, broker_id: int) -> None:
        """Send unanswered questions again, to the process that is this broker now."""
        if broker_id in self._peers:
            self._peers[broker_id].disconnect()

    def close(self) -> None:
        """Close all connections; waiting callers get an error that clients retry on."""
        for each in self._peers.values():
            each.close()


class BrokerPeer:
    """One peer.

    Attributes:
        markers: asks it to write markers.
        inclusions: asks it about the transactions that it coordinates.
    """

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        timers: "Timers",
        supervisor: "Supervisor",
        log: RateLimitedLog,
    ) -> None:
        self._markers_link = PeerLink(
            connect, timers, WriteTxnMarkersResponse, MARKERS_VERSION, timeout_ms=None
        )
        self._inclusions_link = PeerLink(
            connect,
            timers,
            AddPartitionsToTxnResponse,
            INCLUSIONS_VERSION,
            timeout_ms=INCLUSIONS_TIMEOUT_MS,
        )
        self.markers = PeerQuestions(
            f"{name}, markers",
            self._write_markers,
            timers=timers,
            supervisor=supervisor,
            log=log,
            wait_ms_max=MARKERS_WAIT_MS,
            is_joined=True,
        )
        self.inclusions = PeerQuestions(
            f"{name}, transactions",
            self._include,
            timers=timers,
            supervisor=supervisor,
            log=log,
            wait_ms_max=INCLUSIONS_TIMEOUT_MS,
            is_joined=False,
        )

    def close(self) -> None:
        """Close the connections, and ask nothing more."""
        self.markers.close()
        self.inclusions.close()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connections; the next questions make new ones."""
        self._markers_link.abort()
        self._inclusions_link.abort()

    async def _write_markers(self, markers: Collection[Marker]) -> Mapping[Marker, ErrorCode]:
        groups = marker_groups(markers)
        response = await self._markers_link.ask(markers_request(groups))
        return dict(marker_codes(markers, groups, response))

    async def _include(self, inclusions: Collection[Inclusion]) -> Mapping[Inclusion, ErrorCode]:
        groups = inclusion_groups(inclusions)
        response = await self._inclusions_link.ask(inclusions_request(groups))
        if response.error_code:
            raise PeerUnavailable(f"refused with {ErrorCode(response.error_code).name}")
        return dict(inclusion_codes(groups, response))

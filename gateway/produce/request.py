"""One Produce request while it is served: its route, the appends of its batches, its response.

Rule: every partition is answered for itself, and the response is ready when the last batch is
durable or rejected. While records of a request are walked off the event loop, its connection holds
this request and all behind it, then starts it again; only the batches that were walked are appended
then. So no request of a connection overtakes another, and a connection has at most one such
request.
Must not know: how a request is parsed, how a log stores a batch, when a response is sent.
"""

from collections.abc import Callable, Container, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kledger.batches.header import FLAGS_AT, TRANSACTIONAL_BIT
from kledger.gateway.api_errors import error_code_of, record_errors_of
from kledger.gateway.current_leaders import CurrentLeaders
from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.produce_codec import (
    LEADER_HINTS_SINCE,
    TOPIC_ID_SINCE,
    ParsedProduceRequest,
    PartitionResult,
    Records,
    SingleBatch,
    hinted_produce_response_frame,
    owned_records,
    produce_response_frame,
)
from kledger.runtime.blocking import PoolClosed
from kledger.topics import PartitionLog, RecordWalk, TopicRegistry, WalkNeeded, WalkResult, run_walk

if TYPE_CHECKING:
    from kledger.gateway.net.ports import ResponsePort
    from kledger.gateway.peer import Peer
    from kledger.gateway.services import Services
    from kledger.runtime.compute_pool import ComputePool
    from kledger.security.authorizer import Authorizer
    from kledger.security.principal import Principal
    from kledger.topics import AppendResult, TopicsError

ROUTES_MAX = 4096
"""Routes that are cached, some hundred bytes each; one more clears the cache."""
RouteKey: TypeAlias = tuple[int, bytes, "tuple[Principal, str] | None"]
"""The version of Produce, the bytes before the records, and with an authorizer user and address."""
NOT_LEADER_OR_FOLLOWER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
PENDING: PartitionResult = (b"", 0, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, -1, None, ())


class ProduceRouteCache:
    """The logs of requests that begin with the same bytes, for one server.

    A producer sends the same bytes before its records again and again. What they alone decide, the
    log and the required acks, is cached by them. Only requests with one batch and no transaction
    are cached, and only while no topic changes and the log is open; when idle logs are closed, the
    registry says so, and none of them is kept in memory here. With an authorizer a route belongs to
    one user and address, and lasts until a rule changes.
    """

    __slots__ = ("_authorizer", "_epoch", "_registry", "_routes", "_rules_version")

    def __init__(self, registry: TopicRegistry, authorizer: "Authorizer | None" = None) -> None:
        self._registry = registry
        self._epoch = registry.epoch
        self._authorizer = authorizer
        self._rules_version = 0 if authorizer is None else authorizer.version
        self._routes: dict[RouteKey, tuple[ParsedProduceRequest, tuple[PartitionLog]]] = {}
        registry.idle_closed.add(self._forget_closed)

    def __len__(self) -> int:
        return len(self._routes)

    def find(
        self, version: int, single_batch: SingleBatch | None, peer: "Peer"
    ) -> tuple[ParsedProduceRequest, tuple[PartitionLog]] | None:
        """Return the request that holds a batch, and its log; None if its route is not cached.

        A batch that may need more than its route says (a transaction, no flags) has none.
        """
        if single_batch is None:
            return None
        head, records = single_batch
        if self._epoch != self._registry.epoch:
            self._epoch = self._registry.epoch
            self._routes.clear()
        authorizer, writer = self._authorizer, None
        if authorizer is not None:
            writer = peer.principal, peer.host
            if self._rules_version != authorizer.version:
                self._rules_version = authorizer.version
                self._routes.clear()
        route = self._routes.get((version, head, writer))
        if route is None or len(records) <= FLAGS_AT:
            return None
        if route[1][0].is_closed or records[FLAGS_AT] & TRANSACTIONAL_BIT:
            return None
        return route

    def remember(
        self,
        version: int,
        single_batch: SingleBatch | None,
        request: ParsedProduceRequest,
        found: Sequence[PartitionLog | int],
        peer: "Peer",
    ) -> None:
        """Cache the route of a request, if it has one batch and that has a log."""
        if single_batch is None or isinstance(found[0], int):
            return
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        writer = None if self._authorizer is None else (peer.principal, peer.host)
        self._routes[version, single_batch[0], writer] = (request, (found[0],))

    def _forget_closed(self) -> None:
        """Drop the routes to closed logs: the next request opens its log again."""
        self._routes = {
            head: route for head, route in self._routes.items() if not route[1][0].is_closed
        }


class ProduceSlot(ResponseSlot):
    """The response of one request; ready when every partition has a result.

    Under acks 0 it is in no queue and sends nothing.

    Attributes:
        port: the connection of the request.
        request: the request that it answers.
        batches_in_walk: positions of the batches whose records are being walked; they are not
            appended yet.
    """

    __slots__ = (
        "_correlation_id",
        "_pending",
        "_results",
        "_throttle_time_ms",
        "_version",
        "batches_in_walk",
        "port",
        "request",
    )

    def __init__(
        self, port: "ResponsePort", version: int, correlation_id: int, request: ParsedProduceRequest
    ) -> None:
        # Not calling the base's constructor saves a tenth of a microsecond a request.
        self.response = None
        self.batches_in_walk: Sequence[int] = ()
        self.port = port
        self._version = version
        self._correlation_id = correlation_id
        self.request = request
        self._pending = len(request.partitions)
        self._results: list[PartitionResult] = [PENDING] * self._pending
        self._throttle_time_ms = port.throttle_time_ms

    def single_batch_appended(self, result: "AppendResult") -> None:
        """Answer a request whose only batch is durable or rejected. The hot path."""
        error, base_offset, append_time_ms, log_start_offset, _ = result
        if error is not None or self.request.acks == 0:
            self.batch_appended(0, result)
            return
        try:
            key, index = self.request.partitions[0]
            row = (key, index, 0, base_offset, append_time_ms, log_start_offset, None, ())
            frame = produce_response_frame(
                self._correlation_id, self._version, (row,), self._throttle_time_ms
            )
            self.response = (frame,)
            self.port.slot_ready(self)
        except Exception as fault:  # noqa: BLE001 - the calling partition must not suffer from it
            self.port.contain(fault)

    def batch_appended(self, position: int, result: "AppendResult") -> None:
        """Take the result of a batch that is durable or rejected."""
        try:
            self._batch_appended(position, result)
        except Exception as fault:  # noqa: BLE001 - the calling partition must not suffer from it
            self.port.contain(fault)

    def _batch_appended(self, position: int, result: "AppendResult") -> None:
        error, base_offset, append_time_ms, log_start_offset, _ = result
        if error is not None:
            self._append_failed(position, error, log_start_offset)
            return
        key, index = self.request.partitions[position]
        self._results[position] = (
            key, index, 0, base_offset, append_time_ms, log_start_offset, None, (),
        )  # fmt: skip
        self._pending -= 1
        if not self._pending:
            self.complete()

    def _append_failed(self, position: int, error: "TopicsError", log_start_offset: int) -> None:
        code = error_code_of(error)
        self.batch_rejected(position, code, log_start_offset, str(error), record_errors_of(error))

    def batch_rejected(
        self,
        position: int,
        code: int,
        log_start_offset: int = -1,
        message: str | None = None,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> None:
        """Take the error of a batch; under acks 0 it closes the connection."""
        if self.request.acks == 0:
            self.port.fail(f"produce with acks 0: error {code} {message or ''}")
        key, index = self.request.partitions[position]
        self._results[position] = (
            key, index, code, -1, -1, log_start_offset, message, record_errors,
        )  # fmt: skip
        self._pending -= 1
        if not self._pending:
            self.complete()

    def answer_now(self) -> None:
        """Reject the batches in walks: a stopping server does not start the request again."""
        positions, self.batches_in_walk = self.batches_in_walk, ()
        for position in positions:
            self.batch_rejected(position, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def complete(self) -> None:
        """Encode the response; it is sent when all responses before it were sent."""
        if self.request.acks == 0:
            return
        self.response = (self._frame(),)
        self.port.slot_ready(self)

    def _frame(self) -> bytes:
        return produce_response_frame(
            self._correlation_id, self._version, self._results, self._throttle_time_ms
        )


class ClusterProduceSlot(ProduceSlot):
    """The response of a broker that names the leaders of partitions that others lead (KIP-951)."""

    __slots__ = ("_leaders",)

    def __init__(
        self,
        port: "ResponsePort",
        version: int,
        correlation_id: int,
        request: ParsedProduceRequest,
        *,
        leaders: CurrentLeaders,
    ) -> None:
        """Args: leaders: of the cluster."""
        super().__init__(port, version, correlation_id, request)
        self._leaders = leaders

    def _frame(self) -> bytes:
        if self._version < LEADER_HINTS_SINCE:
            return super()._frame()
        refused = [each[:2] for each in self._results if each[2] == NOT_LEADER_OR_FOLLOWER]
        if not refused:
            return super()._frame()
        has_ids = self._version >= TOPIC_ID_SINCE
        return hinted_produce_response_frame(
            self._correlation_id,
            self._version,
            self._results,
            self._throttle_time_ms,
            self._leaders.hints(refused, self.port.peer, has_topic_ids=has_ids),
        )


def slot_maker(
    services: "Services",
) -> Callable[["ResponsePort", int, int, ParsedProduceRequest], ProduceSlot]:
    """Return what makes the slots of one server."""
    if services.registry.placement is None:
        return ProduceSlot
    return partial(ClusterProduceSlot, leaders=CurrentLeaders(services))


class _PartialAppend(NamedTuple):
    """A request whose other batches are appended, and the results of the walks over the rest."""

    slot: ProduceSlot
    walked: dict[int, WalkResult]


class ProduceAppends:
    """The appends of one server's Produce requests."""

    __slots__ = ("_compute_pool", "_partial_appends")

    def __init__(self, compute_pool: "ComputePool") -> None:
        self._compute_pool = compute_pool
        self._partial_appends: dict[ResponsePort, _PartialAppend] = {}

    def append(
        self,
        slot: ProduceSlot,
        frame: memoryview,
        records: Records,
        found: Sequence[PartitionLog | int],
        verified: Container[int],
        *,
        is_owned: bool,
    ) -> Coroutine[Any, Any, None] | None:
        """Append every batch of a request, or those that were walked since its first start.

        Args:
            slot: of the request; it takes the result of each batch.
            frame: see `FrameHandler.start`.
            records: by position, the records of each batch, as views of the frame.
            found: by position, the log of each batch, or its error code.
            verified: positions of the batches whose transaction includes their partition.
            is_owned: see `FrameHandler.start`.

        Returns:
            None, or the walks: the connection runs them before it starts the request again.
        """
        walked: dict[int, WalkResult] | None = None
        positions: Iterable[int] = range(len(found))
        if (
            self._partial_appends
            and (partial_append := self._partial_appends.pop(slot.port, None)) is not None
        ):
            slot, walked = partial_append
            positions = walked
        elif slot.request.acks != 0:
            slot.port.open_slot(slot, is_exclusive=False)
        walks: dict[int, RecordWalk] | None = None
        for position in positions:
            log = found[position]
            if isinstance(log, int):
                slot.batch_rejected(position, log)
                continue
            view = records[position]
            assert view is not None, "null records have an error code, and no log"
            batch = owned_records(frame, view, is_owned=is_owned)
            on_appended = slot.single_batch_appended
            if len(found) > 1:
                on_appended = partial(slot.batch_appended, position)
            try:
                result = log.append_nowait(
                    batch,
                    on_appended,
                    is_verified=position in verified,
                    walked=None if walked is None else walked[position],
                )
            except WalkNeeded as needed:
                walks = {**(walks or {}), position: needed.walk}
            else:
                if result is not None:
                    on_appended(result)
        if walks is not None:
            return self._walk(slot, walks)
        if not found:
            slot.complete()
        return None

    async def _walk(self, slot: ProduceSlot, walks: dict[int, RecordWalk]) -> None:
        """Walk the records of batches, and keep the results for the next start of the request."""
        slot.batches_in_walk = tuple(walks)
        port, compute_pool = slot.port, self._compute_pool
        walked = {}
        for position, walk in walks.items():
            try:
                walked[position] = await run_walk(walk, compute_pool)
            except PoolClosed:  # the server is stopping
                port.abort()
            if port.is_closed:
                break
        slot.batches_in_walk = ()
        self._partial_appends[port] = _PartialAppend(slot, walked)
        for each in [each for each in self._partial_appends if each.is_closed]:
            del self._partial_appends[each]

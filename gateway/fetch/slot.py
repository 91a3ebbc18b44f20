"""FetchSlot: one fetch while it is served: it waits for records, reads them once, and answers.

Rule: while it waits, it is a listener of its logs and one timer, no task. Changes are counted at
once, but the response is made at the end of the tick, so that it has everything that became durable
together. `fetch_plan` decides whether to wait and how much to read. With an authorizer it listens
to its rules, too: a partition that the client may no longer read ends the wait without records.
Must not know: how requests are parsed, topics.
"""

from typing import TYPE_CHECKING, Protocol

from kledger.batches.header import read_header
from kledger.gateway.api_errors import error_code_of
from kledger.gateway.current_leaders import CurrentLeaders
from kledger.gateway.fetch.fetch_plan import (
    HINTED_ERRORS,
    NONE,
    FetchBudget,
    FetchWait,
    leader_epoch_error,
    offset_error,
)
from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.request_context import is_authorized
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.fetch_codec import (
    LEADER_HINTS_SINCE,
    TOPIC_ID_SINCE,
    FetchPartition,
    FetchResult,
    ParsedFetchRequest,
    encode_fetch_response,
    fetch_response_frame,
)
from kledger.gateway.wire.header import response_prefix
from kledger.gateway.wire.leader_hints import LeaderHints
from kledger.gateway.wire.primitives import Buffer
from kledger.security.acl_state import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kledger.gateway.net.ports import ResponsePort
    from kledger.gateway.services import Services
    from kledger.runtime.timers import TimerHandle
    from kledger.topics import PartitionLog, ReadResult

FETCH = 1
READ_COMMITTED = 1
TOPIC_AUTHORIZATION_FAILED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
UNKNOWN_TOPIC_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
UNKNOWN_TOPIC_OR_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
LogLookup = tuple["PartitionLog | None", int]
"""The log of a partition and NONE, or None and an error code."""


def missing_partition_code(*, has_topic_ids: bool) -> int:
    """Return the error code of a partition that no longer exists."""
    return UNKNOWN_TOPIC_ID if has_topic_ids else UNKNOWN_TOPIC_OR_PARTITION


def without_records(result: FetchResult) -> FetchResult:
    """Return the result of a partition without its records."""
    key, index, error_code, high_watermark, stable_offset, start_offset, aborted, _, _ = result
    aborted = () if aborted else aborted
    return key, index, error_code, high_watermark, stable_offset, start_offset, aborted, (), 0


class PartitionChangeListener(Protocol):
    """A fetch or a session, called when the log of one of its partitions changes.

    Attributes:
        missing_partition_code: the error code of a partition that no longer exists.
    """

    missing_partition_code: int

    def partition_changed(self, one: "FetchedPartition") -> None:
        """Act on a partition whose log has grown, was truncated, or was closed."""
        ...


class FetchedPartition:
    """One partition of a fetch, and the listener of its log."""

    __slots__ = ("bytes_max", "counted", "error_code", "fetch", "index", "key", "log", "offset")

    def __init__(
        self, fetch: "PartitionChangeListener", key: bytes, index: int, offset: int, bytes_max: int
    ) -> None:
        self.fetch = fetch
        self.key = key
        self.index = index
        self.offset = offset
        self.bytes_max = bytes_max
        self.log: PartitionLog | None = None
        self.error_code = 0
        self.counted = 0

    def use(self, log: "PartitionLog", leader_epoch: int) -> None:
        """Read from `log`; in error if the client knows another leader epoch, negative: none."""
        self.log = log
        self.error_code = (
            NONE if leader_epoch < 0 else leader_epoch_error(leader_epoch, log.leader_epoch)
        )

    def __call__(self) -> None:
        """Be called by the log at its next change."""
        self.fetch.partition_changed(self)

    def count(self, wait: FetchWait, *, is_committed: bool) -> None:
        """Count the bytes that the log has for this fetch."""
        log = self.log
        if log is not None and log.is_closed:
            self.error_code = self.fetch.missing_partition_code
        if self.error_code or log is None:
            wait.add_error()
            return
        high_watermark = log.high_watermark
        self.error_code = offset_error(self.offset, log.log_start_offset, high_watermark)
        if self.error_code:
            wait.add_error()
            return
        upto = log.last_stable_offset if is_committed else high_watermark
        if self.offset < upto:
            available = log.available_bytes(self.offset, upto)
            self.counted = wait.add(available, self.bytes_max, self.counted)

    def is_readable(self, budget: FetchBudget, *, is_committed: bool) -> bool:
        """Return whether a read would return anything."""
        log = self.log
        if self.error_code or log is None or not budget.can_read(self.bytes_max):
            return False
        return self.offset < (log.last_stable_offset if is_committed else log.high_watermark)

    def read_nowait(self, budget: FetchBudget, *, is_committed: bool) -> "ReadResult | None":
        """Read from memory what the budget allows; None if the storage must be read."""
        assert self.log is not None
        return self.log.read_nowait(
            self.offset,
            budget.limit(self.bytes_max),
            read_committed=is_committed,
            first_batch_always=budget.is_first,
        )

    async def read(self, budget: FetchBudget, *, is_committed: bool) -> "ReadResult":
        """Read what the budget allows."""
        assert self.log is not None
        return await self.log.read(
            self.offset,
            budget.limit(self.bytes_max),
            read_committed=is_committed,
            first_batch_always=budget.is_first,
        )

    def result(self, read: "ReadResult | None", *, is_committed: bool) -> FetchResult:
        """Return the result of this partition; `read` is None if nothing was read."""
        log = self.log
        aborted: Sequence[tuple[int, int]] | None = () if is_committed else None
        if read is not None and read.error is not None:
            is_closed = log is not None and log.is_closed
            self.error_code = (
                self.fetch.missing_partition_code if is_closed else error_code_of(read.error)
            )
        if self.error_code or log is None:
            aborted = () if log is None or log.is_closed else None
            return self.key, self.index, self.error_code, -1, -1, -1, aborted, (), 0
        if read is None:
            return (
                self.key, self.index, 0,
                log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted, (), 0,
            )  # fmt: skip
        if is_committed and read.chunks and log.has_aborted_after(self.offset):
            end_offset = read_header(read.chunks[-1]).last_offset + 1
            aborted = log.aborted_transactions(self.offset, end_offset)
        return (
            self.key, self.index, 0,
            read.high_watermark, read.last_stable_offset, read.log_start_offset,
            aborted, read.chunks, read.size,
        )  # fmt: skip


class FetchSlot(ResponseSlot):
    """The response of one fetch in the queue of its connection."""

    __slots__ = (
        "_body",
        "_correlation_id",
        "_has_slot",
        "_idle_body",
        "_is_abandoned",
        "_is_changed",
        "_is_committed",
        "_is_listening",
        "_listens_to_rules",
        "_port",
        "_registry_epoch",
        "_request",
        "_rules_version",
        "_services",
        "_timer",
        "_version",
        "_wait",
        "missing_partition_code",
        "wanted",
    )

    def __init__(
        self,
        services: "Services",
        port: "ResponsePort",
        version: int,
        body: bytes,
        request: ParsedFetchRequest,
    ) -> None:
        super().__init__()
        self._services = services
        self._port = port
        self._version = version
        self._body = body
        self._request = request
        self.missing_partition_code = missing_partition_code(
            has_topic_ids=version >= TOPIC_ID_SINCE
        )
        self._is_committed = request.isolation_level == READ_COMMITTED
        self._correlation_id = 0
        self._registry_epoch = services.registry.epoch
        authorizer = services.authorizer
        self._rules_version = 0 if authorizer is None else authorizer.version
        self._listens_to_rules = False
        self._wait = FetchWait(
            max_wait_ms=request.max_wait_ms,
            bytes_min=request.min_bytes,
            bytes_max=self._bytes_max,
        )
        self._timer: TimerHandle | None = None
        self._has_slot = False
        self._is_abandoned = False
        self._is_listening = False
        self._is_changed = False
        self._idle_body = b""
        self.wanted: list[FetchedPartition] = []

    @property
    def _bytes_max(self) -> int:
        config, port = self._services.config, self._port
        return min(self._request.max_bytes, config.fetch_max_bytes, port.meter.fetch_bytes_max)

    def require(self, wanted: "Iterable[tuple[FetchPartition, LogLookup]]") -> None:
        """Add partitions, each with its log or its error."""
        for (key, index, leader_epoch, offset, _, _, bytes_max), (log, error_code) in wanted:
            one = FetchedPartition(self, key, index, offset, bytes_max)
            one.error_code = error_code
            if log is not None:
                one.use(log, leader_epoch)
            self.wanted.append(one)

    def refuse(self, error_code: int) -> None:
        """Answer every partition with an error that has none."""
        for one in self.wanted:
            one.error_code = one.error_code or error_code

    # Waiting.

    @property
    def is_parked(self) -> bool:
        """Whether it waits for records or its timeout."""
        return self._timer is not None

    def begin(self, correlation_id: int) -> None:
        """Answer at once if there is enough, otherwise wait."""
        self._correlation_id = correlation_id
        self._count_available()
        if self._wait.is_over:
            self._answer()
            return
        self._add_listeners()
        self._park()

    def _count_available(self) -> None:
        """Count the bytes of all partitions."""
        wait, is_committed = self._wait, self._is_committed
        for one in self.wanted:
            one.count(wait, is_committed=is_committed)
        if not self.wanted:
            wait.is_over = True

    def _add_listeners(self) -> None:
        """Listen to all logs."""
        self._is_listening = True
        self._listen_to_rules()
        for one in self.wanted:
            assert one.log is not None
            one.log.add_listener(one, self._port)

    # Rights.

    def _listen_to_rules(self) -> None:
        authorizer = self._services.authorizer
        if authorizer is not None:
            self._listens_to_rules = True
            authorizer.changed.add(self._rules_changed, self._port)

    def _rules_changed(self) -> None:
        """Stop waiting if the client may no longer read a partition."""
        if self._timer is None:
            self._is_changed = True  # Between two requests: the next one is checked anew.
            return
        self._rules_version = self._services.rules_version
        for one in self._waited_for():
            if not self._may_read(one):
                one.error_code = TOPIC_AUTHORIZATION_FAILED
                one.fetch.partition_changed(one)

    def _waited_for(self) -> "Collection[FetchedPartition]":
        """Return the partitions whose changes it waits for."""
        return self.wanted

    def _may_read(self, one: FetchedPartition) -> bool:
        log = one.log
        return log is None or is_authorized(
            self._services, self._port.peer, Operation.READ, ResourceType.TOPIC, log.topic
        )

    def _still_allowed(self, results: list[FetchResult]) -> list[FetchResult]:
        """Replace results that the client may not see any more: rules changed during the read."""
        authorizer = self._services.authorizer
        if authorizer is None or self._rules_version == authorizer.version:
            return results
        allowed = []
        for one, result in zip(self.wanted, results, strict=True):
            if not self._may_read(one):
                one.error_code = TOPIC_AUTHORIZATION_FAILED
            lost = one.error_code == TOPIC_AUTHORIZATION_FAILED
            allowed.append(one.result(None, is_committed=self._is_committed) if lost else result)
        return allowed

    def matches(self, version: int, body: bytes) -> bool:
        """Return whether a request equals this one, and no log has changed since."""
        return (
            not self._is_changed
            and self._is_listening
            and self._version == version
            and self._registry_epoch == self._services.registry.epoch
            and self._body == body
        )

    def wait_again(self, correlation_id: int) -> None:
        """Serve another request that equals this one."""
        self._correlation_id = correlation_id
        self.response = None
        self._has_slot = False
        self._park()

    def _park(self) -> None:
        self._open_slot()
        timers, wait_ms = self._services.timers, self._request.max_wait_ms
        self._timer = timers.call_after(wait_ms, self._expire, self._port)

    def _open_slot(self) -> None:
        if not self._has_slot:
            self._has_slot = True
            self._port.open_slot(self, is_exclusive=True)

    def partition_changed(self, one: FetchedPartition) -> None:
        """Act on a partition whose log has grown, was truncated, or was closed."""
        if self._is_changed and self._wait.is_over:
            return
        self._is_changed = True
        if self._timer is None:
            return  # Between two requests: the next one counts anew.
        one.count(self._wait, is_committed=self._is_committed)
        if self._wait.is_over:
            self._port.finish_at_tick_end(self)

    def finish(self) -> None:
        """Stop waiting, and answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._answer()

    def _expire(self) -> None:
        """Answer at the timeout; if no log has changed, stay for an equal request."""
        self._timer = None
        if self._is_changed or not self._wait.is_empty:
            self._answer()
            return
        self._port.retained_slot = self
        if not self._idle_body:
            results = [one.result(None, is_committed=self._is_committed) for one in self.wanted]
            self._idle_body = b"".join(encode_fetch_response(self._version, results))
        size = len(self._idle_body)
        prefix = response_prefix(self._correlation_id, FETCH, self._version, size)
        self._respond([prefix + self._idle_body])

    def contain(self, error: Exception) -> None:
        """Close the connection: this fetch has failed."""
        self._port.contain(error)

    def answer_now(self) -> None:
        """Answer with what there is."""
        self.finish()

    def abandon(self) -> None:
        """Stop: the connection is closed, or its next request is another one."""
        self._is_abandoned = True
        self._stop_listening()
        self.wanted.clear()

    def _stop_listening(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._listens_to_rules and (authorizer := self._services.authorizer) is not None:
            self._listens_to_rules = False
            authorizer.changed.remove(self._rules_changed)
        if self._is_listening:
            self._is_listening = False
            for one in self.wanted:
                assert one.log is not None
                one.log.remove_listener(one)

    # Answering.

    def _answer(self) -> None:
        """Read and answer, when there is room for the response."""
        self._stop_listening()
        space = self._port.fetch_space
        admitted_bytes = space.admitted_bytes()
        if admitted_bytes:
            self._read(admitted_bytes)
        else:
            self._open_slot()
            space.wait_for_room(self._resume)

    def _resume(self) -> None:
        self._read(self._port.fetch_space.fetch_bytes_max)

    def _read(self, admitted_bytes: int) -> None:
        budget = FetchBudget(min(self._bytes_max, admitted_bytes))
        results: list[FetchResult] = []
        try:
            for one in self.wanted:
                read = None
                if one.is_readable(budget, is_committed=self._is_committed):
                    read = one.read_nowait(budget, is_committed=self._is_committed)
                    if read is None:
                        self._continue_from_storage(results, budget)
                        return
                    budget.spend(read.size)
                results.append(one.result(read, is_committed=self._is_committed))
            self._send(results)
        except Exception as error:  # noqa: BLE001 - the caller may serve another connection
            self._port.contain(error)

    def _continue_from_storage(self, results: list[FetchResult], budget: FetchBudget) -> None:
        self._open_slot()
        self._port.fetch_space.reserve(budget.bytes_left)
        work = self._read_from_storage(results, budget)
        self._services.supervisor.spawn(work, "fetch from storage", unit=self._port)

    async def _read_from_storage(self, results: list[FetchResult], budget: FetchBudget) -> None:
        """Read the partitions that have no result yet."""
        for one in self.wanted[len(results) :]:
            read = None
            if one.is_readable(budget, is_committed=self._is_committed):
                read = await one.read(budget, is_committed=self._is_committed)
                if self._is_abandoned:
                    return
                budget.spend(read.size)
            results.append(one.result(read, is_committed=self._is_committed))
        self._port.fetch_space.release()
        self._send(results)

    def _within_quota(self, results: list[FetchResult]) -> list[FetchResult]:
        """Leave the records out if the client has used up its quota."""
        size = sum(result[-1] for result in results)
        if not size or self._port.meter.admits_fetched(size):
            return results
        return [without_records(result) for result in results]

    def _send(self, results: list[FetchResult]) -> None:
        results = self._within_quota(self._still_allowed(results))
        # Breaks the cycle of fetch and partitions, or only the garbage collector would free them.
        self.wanted.clear()
        hints = self._leader_hints(results) if self._wait.has_error else None
        self._respond(
            fetch_response_frame(self._correlation_id, self._version, results, hints=hints)
        )

    def _leader_hints(self, results: "Sequence[FetchResult]") -> LeaderHints | None:
        """Return the leaders of the partitions whose client knows an older one; None: no such."""
        refused = [each[:2] for each in results if each[2] in HINTED_ERRORS]
        if not refused or self._version < LEADER_HINTS_SINCE:
            return None
        leaders = CurrentLeaders(self._services)
        return leaders.hints(refused, self._port.peer, has_topic_ids=True)

    def _respond(self, response: list[Buffer]) -> None:
        if self._has_slot:
            self.response = response
            self._port.slot_ready(self)
        else:
            self._port.respond(response)

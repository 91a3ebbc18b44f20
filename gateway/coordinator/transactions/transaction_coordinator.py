"""Transaction coordinator: the transactional ids of the attached shards, as handlers see them.

Rule: one step at a time for each transactional id: `txn_state` decides, and the record holds when
its row is durable. An EndTxn is answered when its outcome is durable; the markers are written in
the same step, and the next request of that id waits for them. Outcomes without markers, which a
crash leaves, are completed when their shard is attached. Offsets of groups that are served here
take the outcome in its own write; to other groups it is written as to partitions.
Must not know: API versions, message classes, how a partition keeps its transactions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kledger.gateway.coordinator.coordinator_shards_state import (
    OFFSETS_TOPIC,
    CoordinatedShards,
    CoordinatorShards,
    Includes,
)
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.shard_counts import load_shard_count
from kledger.gateway.coordinator.shard_loader import ShardLoader
from kledger.gateway.coordinator.transactions import txn_state
from kledger.gateway.coordinator.transactions.txn_record import (
    TXN_KEY_PREFIX,
    TxnRecord,
    TxnState,
    decode_txn,
    decode_txn_key,
    encode_txn,
    encode_txn_key,
)
from kledger.gateway.coordinator.transactions.txn_state import (
    NO_PRODUCER,
    AbortFirst,
    Decision,
    InitProducerId,
    NeedProducerId,
    ProducerIdAndEpoch,
    Rejected,
    StoreRecord,
    Unchanged,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError
from kledger.ledger.record_table import RecordChange, RecordRows, RecordTable, submit_together
from kledger.offsets import CommittedOffset, TopicPartition
from kledger.runtime.containment import NamedUnit
from kledger.runtime.keyed_locks import KeyedLocks
from kledger.runtime.logs import RateLimitedLog

if TYPE_CHECKING:
    from kledger.gateway.config import GatewayConfig
    from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
    from kledger.gateway.coordinator.transactions.producer_ids import ProducerIds
    from kledger.ledger import LedgerStore
    from kledger.runtime.clock import Clock
    from kledger.runtime.tasks import Supervisor
    from kledger.runtime.timers import TimerHandle, Timers

logger = logging.getLogger(__name__)

TRANSACTIONAL_IDS_MAX: Final = 100_000
TRANSACTIONAL_ID_BYTES_MAX: Final = 4_096
MARKER_RETRY_MS: Final = 1_000
"""How long until markers that could not be written are tried again."""
WARNINGS_PER_SECOND: Final = 1
"""Of refused markers: an unavailable broker refuses those of all its transactions."""
UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The answer when a row cannot be stored, or the server stops: clients try again."""

StepResult = tuple[ErrorCode, ProducerIdAndEpoch]


class DecideStep(Protocol):
    """One step of `txn_state`, for which only the request is known yet."""

    def __call__(
        self, current: TxnRecord | None, /, *, new_producer_id: int | None, now_ms: int
    ) -> Decision:
        """Decide; the producer id is None as long as none was needed."""
        ...


WriteMarkers = Callable[
    [Iterable[TopicPartition], ProducerIdAndEpoch, bool],
    Awaitable[Mapping[TopicPartition, ErrorCode]],
]
"""Ends a producer's transaction in partitions, durably: (partitions, producer, is commit); returns
those that refused, and why. Raises LedgerError if the outcome is not known of any."""

WriteGroupMarkers = Callable[[ProducerIdAndEpoch, Set[str], bool], Awaitable[Collection[str]]]
"""Ends a producer's transaction in the offsets of groups, durably: (producer, groups, is
commit); returns the groups whose owner could not be asked. Raises LedgerError likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDependencies:
    """What the coordinator works with."""

    store: "LedgerStore"
    offsets: "GroupOffsets"
    producer_ids: "ProducerIds"
    write_markers: WriteMarkers
    write_group_markers: WriteGroupMarkers
    config: "GatewayConfig"
    clock: "Clock"
    timers: "Timers"
    supervisor: "Supervisor"
    coordinated: CoordinatedShards = range


def _decode_row(key: bytes, value: bytes) -> tuple[str, TxnRecord]:
    record = decode_txn(key, value)
    return record.transactional_id, record


_ROWS: Final = RecordRows[str, TxnRecord](
    prefix=TXN_KEY_PREFIX,
    encode_key=encode_txn_key,
    encode=encode_txn,
    decode=_decode_row,
    decode_key=decode_txn_key,
)


class TransactionCoordinator:
    """All transactional ids of this node.

    Attributes:
        shards: of the transactional ids, for reading; `attach` and `detach` change them.
    """

    def __init__(self, parts: TransactionDependencies) -> None:
        """Load all transactional ids.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        self._parts = parts
        self._records = RecordTable(parts.store, _ROWS)
        self._locks: KeyedLocks[str] = KeyedLocks()
        self._timers: dict[str, TimerHandle] = {}
        self._is_closed = False
        self._log = RateLimitedLog(logger, WARNINGS_PER_SECOND, parts.clock)
        self.shards = CoordinatorShards(load_shard_count(parts.store, "transactions"))
        self._loader = ShardLoader(self.shards, parts.store, self)
        self._loader.attach_at_start(parts.coordinated(self.shards.count))

    def start(self) -> None:
        """Complete the outcomes that a crash left without markers, and start the timers."""
        self._complete_prepared(self._records.durable.values())
        self._sweep_timeouts()
        self._sweep_expired()

    def close(self) -> None:
        """Refuse everything from now on, stop every timer. May be repeated."""
        self._is_closed = True
        self._loader.close()
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    # Shards.

    async def attach(self, numbers: Collection[int]) -> None:
        """Load shards and serve their transactional ids; see `ShardLoader.attach`."""
        await self._loader.attach(numbers)

    async def detach(self, numbers: Collection[int]) -> None:
        """Refuse shards from now on, and forget them; see `ShardLoader.detach`."""
        await self._loader.detach(numbers)

    def error(self, transactional_id: str) -> ErrorCode:
        """Return why requests for a transactional id are refused; NONE if they are served."""
        return UNAVAILABLE if self._is_closed else self.shards.error(transactional_id)

    # Plain reads.

    def records(self) -> list[TxnRecord]:
        """Return the record of every transactional id of the attached shards."""
        records, error = self._records.durable, self.shards.error
        return [
            record for transactional_id, record in records.items() if not error(transactional_id)
        ]

    def record(self, transactional_id: str) -> TxnRecord | None:
        """Return the record of a transactional id, or None."""
        return self._records.get(transactional_id)

    def is_producer(self, transactional_id: str, producer_id: int) -> bool:
        """Whether a producer id is that of a transactional id.

        True also where another coordinator would know: it verified the first batch.
        """
        record = self._records.get(transactional_id)
        if record is None:
            return bool(self.shards.error(transactional_id))
        return producer_id == record.producer_id

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, topic_partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE if a partition belongs to a producer's open transaction, or what is wrong.

        A partition of OFFSETS_TOPIC does also if a group of that shard was added.
        """
        if error := self.shards.error(transactional_id):
            return error
        record = self._records.get(transactional_id)
        if record is not None and topic_partition.topic == OFFSETS_TOPIC:
            shards = map(self._parts.offsets.partition_of, record.groups)
            record = record._replace(partitions=record.partitions.union(shards))
        return txn_state.verify(record, producer, topic_partition)

    # The steps of a transaction.

    async def initialise(self, request: InitProducerId) -> StepResult:
        """Make sure that this producer, and no older one, holds the transactional id."""
        transactional_id = request.transactional_id
        size = len(transactional_id.encode())
        if not 0 < size <= TRANSACTIONAL_ID_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST, NO_PRODUCER
        if not 0 < request.timeout_ms <= self._parts.config.transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER
        return await self._step(transactional_id, partial(txn_state.initialise, request=request))

    async def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        partitions: Iterable[TopicPartition] = (),
        groups: Iterable[str] = (),
        is_v2: bool = False,
    ) -> ErrorCode:
        """Let partitions and groups belong to a transaction; it begins with the first of them."""

        def decide(
            current: TxnRecord | None, *, new_producer_id: int | None, now_ms: int
        ) -> Decision:
            return txn_state.add(
                current,
                producer,
                partitions=partitions,
                groups=groups,
                is_v2=is_v2,
                now_ms=now_ms,
            )

        error, _ = await self._step_of_known(transactional_id, decide)
        return error

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        is_v2: bool = False,
    ) -> StepResult:
        """Commit or abort; returns when the outcome is durable, with the producer to go on as."""
        decide = partial(
            txn_state.end,
            producer=producer,
            is_commit=is_commit,
            is_v2=is_v2,
        )
        return await self._step_of_known(transactional_id, decide)

    async def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        group_id: str,
        sender: RequestingMember,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        """Store offsets that are committed with the transaction; the group must belong to it.

        Args:
            transactional_id: of the transaction.
            producer: its producer.
            group_id: of the offsets.
            sender: the member that commits them.
            offsets: by partition.
        """
        if error := self.error(transactional_id):
            return error
        work = self._add_pending(transactional_id, producer, group_id, sender, offsets)
        return await self._parts.supervisor.finish(work, f"offsets of {transactional_id}")

    async def _add_pending(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        group_id: str,
        sender: RequestingMember,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        if self._records.get(transactional_id) is None:
            return self.shards.error(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        async with self._locks.holding(transactional_id):
            if error := self.shards.error(transactional_id):
                return error  # its shard was detached meanwhile
            record = self._records.get(transactional_id)
            error = txn_state.check_producer(record, producer)
            if record is None or error is not ErrorCode.NONE:
                return error
            if record.state is not TxnState.ONGOING or group_id not in record.groups:
                return ErrorCode.INVALID_TXN_STATE
            offsets_of = self._parts.offsets
            return await offsets_of.add_pending(group_id, sender, producer.producer_id, offsets)

    # One step: decide, store, answer, write the markers of an outcome.

    async def _step_of_known(self, transactional_id: str, decide: DecideStep) -> StepResult:
        """Take a step if the transactional id has a record."""
        if self._records.get(transactional_id) is None:
            error = self.shards.error(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING
            return error, NO_PRODUCER
        return await self._step(transactional_id, decide)

    async def _step(self, transactional_id: str, decide: DecideStep) -> StepResult:
        """Take one step; it is completed even if its caller is cancelled."""
        if error := self.error(transactional_id):
            return error, NO_PRODUCER
        answered: asyncio.Future[StepResult] = asyncio.get_running_loop().create_future()
        work = self._take_step(transactional_id, decide, answered)
        unit = self._unit(transactional_id)
        self._parts.supervisor.spawn(work, f"transaction {transactional_id}", unit=unit)
        return await answered

    async def _take_step(
        self, transactional_id: str, decide: DecideStep, answered: asyncio.Future[StepResult]
    ) -> None:
        outcome: StepResult = UNAVAILABLE, NO_PRODUCER
        try:
            async with self._locks.holding(transactional_id):
                outcome = await self._decided(transactional_id, decide)
                if not answered.done():
                    answered.set_result(outcome)
                await self._write_outcome_markers(transactional_id)
        finally:
            if not answered.done():
                answered.set_result(outcome)

    async def _decided(self, transactional_id: str, decide: DecideStep) -> StepResult:
        if error := self.shards.error(transactional_id):
            return error, NO_PRODUCER  # its shard was detached while the step waited
        current, clock = self._records.get(transactional_id), self._parts.clock
        try:
            decision = decide(current, new_producer_id=None, now_ms=clock.now_ms())
            if isinstance(decision, NeedProducerId):
                new_id = await self._parts.producer_ids.next_id()
                decision = decide(current, new_producer_id=new_id, now_ms=clock.now_ms())
            match decision:
                case Rejected(error):
                    return error, NO_PRODUCER
                case Unchanged(producer):
                    return ErrorCode.NONE, producer
                case StoreRecord() if current is None and self._is_full:
                    return ErrorCode.POLICY_VIOLATION, NO_PRODUCER
                case StoreRecord(record, producer):
                    await self._store(record)
                    return ErrorCode.NONE, producer
                case AbortFirst(record):
                    await self._store(record)
                    return ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER
                case NeedProducerId():
                    raise AssertionError("a new producer id was given")
        except LedgerError as error:
            logger.warning("a step of a transaction was not stored: %s", error)
        return UNAVAILABLE, NO_PRODUCER

    @property
    def _is_full(self) -> bool:
        """Whether one more id is too many; an id counts from the submission of its first row."""
        return self._records.head_count() >= TRANSACTIONAL_IDS_MAX

    async def _store(self, record: TxnRecord) -> None:
        """Make a record durable, an outcome together with the offsets that it decides about.

        The record of an outcome names the groups whose offsets it does not reach here.
        """
        changes: list[RecordChange] = []
        if record.state.is_prepared:
            is_commit = record.state is TxnState.PREPARE_COMMIT
            changes, elsewhere = self._parts.offsets.end(
                record.producer_id, record.groups, is_commit=is_commit
            )
            if record.groups != elsewhere:
                record = record._replace(groups=elsewhere)
        changes.append(self._records.change(record.transactional_id, record))
        if error := await submit_together(changes):
            raise error

    async def _write_outcome_markers(self, transactional_id: str) -> None:
        """Write the markers of an outcome, if there is one; where they are refused: again later.

        Which partitions and groups have theirs is kept in memory only, and the completion is
        written lazily: after a crash or a fault before that the markers are written again.
        """
        record = self._records.get(transactional_id)
        if record is None or not record.state.is_prepared:
            return
        if _retry_timer(transactional_id) in self._timers or self.shards.error(transactional_id):
            return  # it is done later, by this node or by the one that attaches the shard
        producer = ProducerIdAndEpoch(record.producer_id, record.epoch)
        is_commit = record.state is TxnState.PREPARE_COMMIT
        try:
            refused = await self._parts.write_markers(record.partitions, producer, is_commit)
            groups: Collection[str] = ()
            if record.groups:
                groups = await self._parts.write_group_markers(producer, record.groups, is_commit)
            if refused or groups:
                unmarked = txn_state.with_unmarked(record, refused, groups)
                self._records.replay(transactional_id, unmarked)
                self._markers_rejected(transactional_id, refused, groups)
                return
            done = txn_state.completed(record, self._parts.clock.now_ms())
            self._records.submit_lazily([(transactional_id, done)])
        except LedgerError as error:
            logger.warning("markers of transaction %s: %s", transactional_id, error)
            self._retry_later(transactional_id)

    def _markers_rejected(
        self,
        transactional_id: str,
        refused: Mapping[TopicPartition, ErrorCode],
        groups: Collection[str],
    ) -> None:
        if refused:
            topic_partition, error = next(iter(refused.items()))
            self._log.warning(
                "markers of transaction %s: refused by %d partitions, such as %s-%d: %s",
                transactional_id, len(refused), topic_partition.topic, topic_partition.partition,
                error.name,
            )  # fmt: skip
        if groups:
            logger.info("transaction %s waits for %d groups", transactional_id, len(groups))
        self._retry_later(transactional_id)

    # The records of its shards, for the loader.

    def load_shards(self) -> None:
        """Load all transactional ids."""
        self._records.load()

    def read_shards(self, is_included: Includes) -> Callable[[], None]:
        """Read transactional ids; return what lets them hold and completes their outcomes."""
        stored = list(self._records.read(is_included))

        def begin() -> None:
            self._records.load(stored)
            self._complete_prepared(record for _, record in stored)

        return begin

    def stop_shards(self, is_included: Includes) -> None:
        """Stop writing markers again; steps that wait are refused when they come to run."""
        for transactional_id in filter(is_included, self._records.durable):
            handle = self._timers.pop(_retry_timer(transactional_id), None)
            if handle is not None:
                handle.cancel()

    async def settle_shards(self, is_included: Includes) -> None:
        """Wait until every step under way has ended, and its completion was written."""
        await self._locks.settle(is_included)
        await self._parts.store.flush()

    def unload_shards(self, is_included: Includes) -> None:
        """Forget transactional ids."""
        self._records.unload(is_included)

    # Timers.

    def _complete_prepared(self, records: Iterable[TxnRecord]) -> None:
        for record in records:
            if record.state.is_prepared:
                self._spawn_completion(record.transactional_id)

    def _spawn_completion(self, transactional_id: str) -> None:
        if not self._is_closed:
            work, unit = self._complete_locked(transactional_id), self._unit(transactional_id)
            name = f"complete transaction {transactional_id}"
            self._parts.supervisor.spawn(work, name, unit=unit)

    async def _complete_locked(self, transactional_id: str) -> None:
        async with self._locks.holding(transactional_id):
            await self._write_outcome_markers(transactional_id)

    def _retry_later(self, transactional_id: str) -> None:
        if self.shards.error(transactional_id):
            return
        again = partial(self._spawn_completion, transactional_id)
        self._set_timer(_retry_timer(transactional_id), MARKER_RETRY_MS, again)

    def _unit(self, transactional_id: str) -> NamedUnit:
        """Return what a fault in a step closes: that step.

        Its client gets COORDINATOR_NOT_AVAILABLE, and the durable record stays; an outcome without
        markers is completed later.
        """
        return NamedUnit("transaction", transactional_id, partial(self._resume, transactional_id))

    def _resume(self, transactional_id: str) -> None:
        record = self._records.get(transactional_id)
        is_ending = record is not None and record.state.is_prepared
        if is_ending and _retry_timer(transactional_id) not in self._timers:
            self._retry_later(transactional_id)

    def _sweep_timeouts(self) -> None:
        config, now_ms = self._parts.config, self._parts.clock.now_ms()
        interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._set_timer("timeouts", interval_ms, self._sweep_timeouts)
        for record in self._records.durable.values():
            if txn_state.is_timed_out(record, now_ms):
                work, unit = self._abort_timed_out(record), self._unit(record.transactional_id)
                self._parts.supervisor.spawn(work, f"abort {record.transactional_id}", unit=unit)

    async def _abort_timed_out(self, record: TxnRecord) -> None:
        transactional_id = record.transactional_id

        def decide(
            current: TxnRecord | None, *, new_producer_id: int | None, now_ms: int
        ) -> Decision:
            if current is None or not txn_state.is_timed_out(current, now_ms):
                return Rejected(ErrorCode.NONE)
            logger.info("transaction %s has timed out and is aborted", transactional_id)
            return AbortFirst(txn_state.abort_of(current, now_ms))

        await self._step(transactional_id, decide)

    def _sweep_expired(self) -> None:
        config, now_ms = self._parts.config, self._parts.clock.now_ms()
        expiration_ms = config.transactional_id_expiration_ms
        interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._set_timer("expired", interval_ms, self._sweep_expired)
        expired = [
            record.transactional_id
            for record in self.records()
            if record.transactional_id not in self._locks
            and txn_state.is_expired(record, expiration_ms, now_ms)
        ]
        # What a crash brings back expires again.
        self._records.submit_lazily((transactional_id, None) for transactional_id in expired)

    def _set_timer(self, name: str, delay_ms: int, callback: Callable[[], None]) -> None:
        def fired() -> None:
            del self._timers[name]
            callback()

        if not self._is_closed:
            self._timers[name] = self._parts.timers.call_after(delay_ms, fired)


def _retry_timer(transactional_id: str) -> str:
    """Return the name of the timer that tries its markers again."""
    return f"retry {transactional_id}"

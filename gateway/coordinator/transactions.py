"""Transactions: the coordinator of transactional ids, as handlers see it.

Rule: one step at a time for each transactional id: `txn_state` decides, the row is made durable,
then the record holds. An outcome is told when it is durable; its markers follow in the same turn,
and who asks for the next step waits for them. Ends that a crash cut short are completed at the
start.
Must not know: API versions, message classes, how a partition keeps its transactions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kledger.gateway.coordinator import txn_state
from kledger.gateway.coordinator.group_messages import Sender
from kledger.gateway.coordinator.txn_record import (
    KEY_PREFIX,
    TxnRecord,
    TxnState,
    decode_txn,
    encode_key,
    encode_txn,
)
from kledger.gateway.coordinator.txn_state import (
    NOBODY,
    AbortsFirst,
    Becomes,
    Decision,
    Identity,
    InitRequest,
    NeedsProducerId,
    Refused,
    Stays,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError
from kledger.offsets import CommittedOffset, Place
from kledger.runtime.containment import Unit
from kledger.runtime.keyed_locks import KeyedLocks
from kledger.topics import TopicsError

if TYPE_CHECKING:
    from kledger.gateway.config import GatewayConfig
    from kledger.gateway.coordinator.group_offsets import GroupOffsets
    from kledger.gateway.coordinator.producer_ids import ProducerIds
    from kledger.ledger import LedgerStore
    from kledger.runtime.clock import Clock
    from kledger.runtime.tasks import Supervisor
    from kledger.runtime.timers import TimerHandle, Timers

logger = logging.getLogger(__name__)

TRANSACTIONAL_IDS_MAX: Final = 100_000
TRANSACTIONAL_ID_BYTES_MAX: Final = 4_096
RETRY_MS: Final = 1_000
"""How long until markers that could not be written are tried again."""
UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""What clients are told when a row cannot be stored, or the server stops: they try again."""

Outcome = tuple[ErrorCode, Identity]


class Decide(Protocol):
    """One step of `txn_state`, for which only the request is known yet."""

    def __call__(
        self, current: TxnRecord | None, /, *, new_producer_id: int | None, now_ms: int
    ) -> Decision:
        """Decide; the producer id is None as long as none was needed."""
        ...


EndIn = Callable[[Iterable[Place], Identity, bool], Awaitable[Mapping[Place, TopicsError]]]
"""Ends a producer's transaction in partitions, durably: (partitions, producer, is commit); returns
those that refused, and why. May raise LedgerError: it is not known of any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionParts:
    """What the coordinator works with."""

    store: "LedgerStore"
    offsets: "GroupOffsets"
    producer_ids: "ProducerIds"
    end_in: EndIn
    config: "GatewayConfig"
    clock: "Clock"
    timers: "Timers"
    supervisor: "Supervisor"


class TransactionCoordinator:
    """All transactional ids of this node."""

    def __init__(self, parts: TransactionParts) -> None:
        self._parts = parts
        self._records: dict[str, TxnRecord] = {}
        self._locks: KeyedLocks[str] = KeyedLocks()
        self._timers: dict[str, TimerHandle] = {}
        self._first_rows = 0
        self._is_closed = False
        for key, value in parts.store.scan_rows(KEY_PREFIX):
            record = decode_txn(key, value)
            self._records[record.transactional_id] = record

    def start(self) -> None:
        """Complete what a crash cut short, and look after timeouts from now on."""
        for record in self._records.values():
            if record.state.is_prepared:
                self._spawn_completion(record.transactional_id)
        self._sweep_timeouts()
        self._sweep_expired()

    def close(self) -> None:
        """Refuse everything from now on, stop every timer. May be repeated."""
        self._is_closed = True
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    # Looking.

    def records(self) -> list[TxnRecord]:
        """Return what is known of every transactional id."""
        return list(self._records.values())

    def record(self, transactional_id: str) -> TxnRecord | None:
        """Return what is known of a transactional id."""
        return self._records.get(transactional_id)

    def verify(self, transactional_id: str, identity: Identity, place: Place) -> ErrorCode:
        """Say whether a partition belongs to a producer's open transaction; plain."""
        return txn_state.verify(self._records.get(transactional_id), identity, place)

    # The steps of a transaction.

    async def initialise(self, request: InitRequest) -> Outcome:
        """Make sure that this producer, and no older one, holds the transactional id."""
        transactional_id = request.transactional_id
        size = len(transactional_id.encode())
        if not 0 < size <= TRANSACTIONAL_ID_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST, NOBODY
        if not 0 < request.timeout_ms <= self._parts.config.transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY
        return await self._step(transactional_id, partial(txn_state.initialise, request=request))

    async def add(
        self,
        transactional_id: str,
        identity: Identity,
        *,
        partitions: Iterable[Place] = (),
        groups: Iterable[str] = (),
        has_rising_epochs: bool = False,
    ) -> ErrorCode:
        """Let partitions and groups belong to a transaction; it begins with the first of them."""

        def decide(
            current: TxnRecord | None, *, new_producer_id: int | None, now_ms: int
        ) -> Decision:
            return txn_state.add(
                current,
                identity,
                partitions=partitions,
                groups=groups,
                has_rising_epochs=has_rising_epochs,
                now_ms=now_ms,
            )

        error, _ = await self._step_of_known(transactional_id, decide)
        return error

    async def end(
        self,
        transactional_id: str,
        identity: Identity,
        *,
        is_commit: bool,
        has_rising_epochs: bool = False,
    ) -> Outcome:
        """Commit or abort; returns when the outcome is durable, with the producer to go on as."""
        decide = partial(
            txn_state.end,
            identity=identity,
            is_commit=is_commit,
            has_rising_epochs=has_rising_epochs,
        )
        return await self._step_of_known(transactional_id, decide)

    async def commit_offsets(
        self,
        transactional_id: str,
        identity: Identity,
        *,
        group_id: str,
        sender: Sender,
        offsets: Mapping[Place, CommittedOffset],
    ) -> ErrorCode:
        """Store offsets that are committed with the transaction; the group must belong to it.

        Args:
            transactional_id: whose transaction.
            identity: its producer.
            group_id: whose offsets.
            sender: the member on whose behalf they are committed.
            offsets: by partition.
        """
        if self._is_closed:
            return UNAVAILABLE
        work = self._add_pending(transactional_id, identity, group_id, sender, offsets)
        return await self._parts.supervisor.finish(work, f"offsets of {transactional_id}")

    async def _add_pending(
        self,
        transactional_id: str,
        identity: Identity,
        group_id: str,
        sender: Sender,
        offsets: Mapping[Place, CommittedOffset],
    ) -> ErrorCode:
        if transactional_id not in self._records:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        async with self._locks.holding(transactional_id):
            record = self._records.get(transactional_id)
            error = txn_state.check_producer(record, identity)
            if record is None or error is not ErrorCode.NONE:
                return error
            if record.state is not TxnState.ONGOING or group_id not in record.groups:
                return ErrorCode.INVALID_TXN_STATE
            offsets_of = self._parts.offsets
            return await offsets_of.add_pending(group_id, sender, identity.producer_id, offsets)

    # One step: decide, store, let it hold, complete.

    async def _step_of_known(self, transactional_id: str, decide: Decide) -> Outcome:
        """Take a step that only a transactional id can take that is known."""
        if transactional_id not in self._records:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, NOBODY
        return await self._step(transactional_id, decide)

    async def _step(self, transactional_id: str, decide: Decide) -> Outcome:
        """Take one step; it is taken to its end even if its caller goes away."""
        if self._is_closed:
            return UNAVAILABLE, NOBODY
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        work = self._take_step(transactional_id, decide, told)
        unit = self._unit(transactional_id)
        self._parts.supervisor.spawn(work, f"transaction {transactional_id}", unit=unit)
        return await told

    async def _take_step(
        self, transactional_id: str, decide: Decide, told: asyncio.Future[Outcome]
    ) -> None:
        outcome: Outcome = UNAVAILABLE, NOBODY
        try:
            async with self._locks.holding(transactional_id):
                outcome = await self._decided(transactional_id, decide)
                if not told.done():
                    told.set_result(outcome)
                await self._complete(transactional_id)
        finally:
            if not told.done():
                told.set_result(outcome)

    async def _decided(self, transactional_id: str, decide: Decide) -> Outcome:
        current, clock = self._records.get(transactional_id), self._parts.clock
        try:
            decision = decide(current, new_producer_id=None, now_ms=clock.now_ms())
            if isinstance(decision, NeedsProducerId):
                new_id = await self._parts.producer_ids.next_id()
                decision = decide(current, new_producer_id=new_id, now_ms=clock.now_ms())
            match decision:
                case Refused(error):
                    return error, NOBODY
                case Stays(identity):
                    return ErrorCode.NONE, identity
                case Becomes() if current is None and self._is_full:
                    return ErrorCode.POLICY_VIOLATION, NOBODY
                case Becomes(record, identity):
                    await self._store(record)
                    return ErrorCode.NONE, identity
                case AbortsFirst(record):
                    await self._store(record)
                    return ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY
                case NeedsProducerId():
                    raise AssertionError("a new producer id was given")
        except LedgerError as error:
            logger.warning("a step of a transaction was not stored: %s", error)
        return UNAVAILABLE, NOBODY

    @property
    def _is_full(self) -> bool:
        """Whether there is no room for one more id; those count whose first row is on its way."""
        return len(self._records) + self._first_rows >= TRANSACTIONAL_IDS_MAX

    async def _store(self, record: TxnRecord) -> None:
        """Make a record durable, an outcome together with the offsets that it decides about.

        It holds in the very step in which it is durable: what was submitted behind it, a commit of
        the same offsets, say, holds after it in memory too.
        """
        is_first = record.transactional_id not in self._records
        stored: asyncio.Future[LedgerError | None] = asyncio.get_running_loop().create_future()

        def landed(error: LedgerError | None) -> None:
            self._first_rows -= is_first
            if error is None:
                self._records[record.transactional_id] = record
            if not stored.done():
                stored.set_result(error)

        row = (encode_key(record.transactional_id), encode_txn(record))
        if record.state.is_prepared:
            is_commit = record.state is TxnState.PREPARE_COMMIT
            offsets = self._parts.offsets
            offsets.end_nowait(record.producer_id, landed, is_commit=is_commit, outcome=row)
        else:
            self._parts.store.append_rows_nowait([row], landed)
        self._first_rows += is_first
        if error := await stored:
            raise error

    async def _complete(self, transactional_id: str) -> None:
        """Write the markers of an outcome, if there is one; what is refused, later again.

        Where they have been written is remembered only, and that it is complete is stored with
        whatever comes next: a crash before that only writes the markers again.
        """
        record = self._records.get(transactional_id)
        if record is None or not record.state.is_prepared:
            return
        if _retry_of(transactional_id) in self._timers:
            return
        identity = Identity(record.producer_id, record.epoch)
        is_commit = record.state is TxnState.PREPARE_COMMIT
        try:
            refused = await self._parts.end_in(record.partitions, identity, is_commit)
            self._records[transactional_id] = txn_state.ended_but_in(record, refused)
            if refused:
                self._refused(transactional_id, refused)
                return
            done = txn_state.completed(record, self._parts.clock.now_ms())
            row = (encode_key(transactional_id), encode_txn(done))
            self._parts.store.append_rows_lazily([row], _ignore)
        except LedgerError as error:
            logger.warning("markers of transaction %s: %s", transactional_id, error)
            self._retry_later(transactional_id)
        else:
            self._records[transactional_id] = done

    def _refused(self, transactional_id: str, refused: Mapping[Place, TopicsError]) -> None:
        place, error = next(iter(refused.items()))
        logger.warning(
            "markers of transaction %s: refused by %d partitions, such as %s-%d: %s",
            transactional_id, len(refused), place.topic, place.partition, error,
        )  # fmt: skip
        self._retry_later(transactional_id)

    # What happens by itself.

    def _spawn_completion(self, transactional_id: str) -> None:
        if not self._is_closed:
            work, unit = self._complete_in_turn(transactional_id), self._unit(transactional_id)
            name = f"complete transaction {transactional_id}"
            self._parts.supervisor.spawn(work, name, unit=unit)

    async def _complete_in_turn(self, transactional_id: str) -> None:
        async with self._locks.holding(transactional_id):
            await self._complete(transactional_id)

    def _retry_later(self, transactional_id: str) -> None:
        again = partial(self._spawn_completion, transactional_id)
        self._call_after(_retry_of(transactional_id), RETRY_MS, again)

    def _unit(self, transactional_id: str) -> Unit:
        """Return what a fault in a step closes: that step.

        Its client is told to try again, and the record stays what is durable; an outcome that has
        no markers yet is completed later.
        """
        return Unit("transaction", transactional_id, partial(self._resume, transactional_id))

    def _resume(self, transactional_id: str) -> None:
        record = self._records.get(transactional_id)
        is_ending = record is not None and record.state.is_prepared
        if is_ending and _retry_of(transactional_id) not in self._timers:
            self._retry_later(transactional_id)

    def _sweep_timeouts(self) -> None:
        config, now_ms = self._parts.config, self._parts.clock.now_ms()
        interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._call_after("timeouts", interval_ms, self._sweep_timeouts)
        for record in self._records.values():
            if txn_state.is_timed_out(record, now_ms):
                work, unit = self._abort_timed_out(record), self._unit(record.transactional_id)
                self._parts.supervisor.spawn(work, f"abort {record.transactional_id}", unit=unit)

    async def _abort_timed_out(self, record: TxnRecord) -> None:
        transactional_id = record.transactional_id

        def decide(
            current: TxnRecord | None, *, new_producer_id: int | None, now_ms: int
        ) -> Decision:
            if current is None or not txn_state.is_timed_out(current, now_ms):
                return Refused(ErrorCode.NONE)
            logger.info("transaction %s has timed out and is aborted", transactional_id)
            return AbortsFirst(txn_state.fenced(current, now_ms))

        await self._step(transactional_id, decide)

    def _sweep_expired(self) -> None:
        config, now_ms = self._parts.config, self._parts.clock.now_ms()
        expiration_ms = config.transactional_id_expiration_ms
        interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._call_after("expired", interval_ms, self._sweep_expired)
        rows = []
        for record in self.records():
            transactional_id = record.transactional_id
            is_free = transactional_id not in self._locks
            if is_free and txn_state.is_expired(record, expiration_ms, now_ms):
                del self._records[transactional_id]
                rows.append((encode_key(transactional_id), None))
        if rows:
            # What a crash brings back expires again.
            self._parts.store.append_rows_lazily(rows, _ignore)

    def _call_after(self, name: str, delay_ms: int, callback: Callable[[], None]) -> None:
        def fired() -> None:
            del self._timers[name]
            callback()

        if not self._is_closed:
            self._timers[name] = self._parts.timers.call_after(delay_ms, fired)


def _retry_of(transactional_id: str) -> str:
    """Return the name of the timer that tries its markers again."""
    return f"retry {transactional_id}"


def _ignore(_error: LedgerError | None) -> None:
    """What was not stored is worked out again after a restart."""

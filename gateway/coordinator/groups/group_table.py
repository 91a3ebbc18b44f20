"""Group table: the groups of the attached shards, with records, timers and requests that wait.

Rule: decides nothing. A group exists while it has members, a stored record or committed offsets;
those that have only offsets are added when these hold. A group in the table is one of an attached
shard, so that a shard is looked up only for groups that are not there.
Its effects are performed in order, at once, on the loop; what ends later (a write, a timer) reaches
it as an event and yields more effects. A record is written by `Persist`; when it is durable, the
group gets it by `replay`, as at a start. A group that fails on an event or a request is dropped,
and made again of its durable record.
Must not know: what requests mean, which of them are allowed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias, TypeVar, assert_never

from kledger.gateway.coordinator.classic.classic_group_record import (
    GROUP_KEY_PREFIX,
    ClassicGroupRecord,
    decode_classic_group,
    decode_group_key,
    encode_classic_group,
    encode_group_key,
)
from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.consumer.consumer_group_record import (
    ConsumerGroupRecord,
    decode_consumer_group,
    encode_consumer_group,
    is_consumer_group_row,
)
from kledger.gateway.coordinator.consumer.consumer_group_state import (
    ConsumerGroup,
    MemberSessions,
    new_record,
)
from kledger.gateway.coordinator.coordinator_shards_state import (
    NOT_COORDINATOR,
    CoordinatorShards,
    Includes,
)
from kledger.gateway.coordinator.effects import Cancel, Effect, Persist, Respond, Schedule, TimerKey
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.ledger.record_table import RecordChange, RecordRows, RecordTable
from kledger.runtime.clock import Clock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.deferred import Deferred
from kledger.runtime.timers import TimerHandle, Timers

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup
GroupRecord: TypeAlias = ClassicGroupRecord | ConsumerGroupRecord
Answers: TypeAlias = list[tuple[int, object]]
"""Waiters, and the result for each."""
Refused: TypeAlias = Callable[[ErrorCode], object]
"""Returns the result of a request that is refused with an error."""
UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The error when a group has failed, could not be stored, or is closed: clients retry."""
Result = TypeVar("Result")


def _encode(record: GroupRecord) -> bytes:
    if isinstance(record, ConsumerGroupRecord):
        return encode_consumer_group(record)
    return encode_classic_group(record)


def _decode(key: bytes, row: bytes) -> tuple[str, GroupRecord]:
    group_id = decode_group_key(key)
    if is_consumer_group_row(row):
        return group_id, decode_consumer_group(group_id, row)
    return group_id, decode_classic_group(group_id, row)


GROUP_ROWS: Final[RecordRows[str, GroupRecord]] = RecordRows(
    GROUP_KEY_PREFIX, encode_group_key, _encode, _decode, decode_group_key
)


class HostedGroup:
    """One group with the timers that it has set.

    Attributes:
        is_classic: whether it is one of the classic protocol.
        has_failed: a fault has closed it; later events for it are ignored.
    """

    __slots__ = ("_current", "group_id", "has_failed", "is_classic", "timers")

    def __init__(self, group_id: str, current: Callable[[], AnyGroup], *, is_classic: bool) -> None:
        self.group_id = group_id
        self.is_classic = is_classic
        self.has_failed = False
        self.timers: dict[TimerKey, TimerHandle] = {}
        self._current = current

    @property
    def group(self) -> AnyGroup:
        """The group as it is now; one of the consumer protocol is good for one event."""
        return self._current()


@dataclass(slots=True)
class _PendingRequest:
    """A request that waits; `refused` makes its answer when its group cannot give one."""

    refused: Refused
    answer: Deferred[object] = field(default_factory=Deferred)
    hosted: HostedGroup | None = None


class GroupTable:
    """The groups by id."""

    def __init__(
        self,
        store: LedgerStore,
        shards: CoordinatorShards,
        config: GroupConfig,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """Open an empty table; `load` fills it."""
        self.containment = store.containment
        self.shards = shards
        self._config = config
        self._clock = clock
        self._timers = timers
        self._records = RecordTable(store, GROUP_ROWS, self._replayed)
        self._hosted: dict[str, HostedGroup] = {}
        self._next_waiter = 0
        self._waiting: dict[int, _PendingRequest] = {}
        self._last_answers: dict[str, Answers] = {}
        """By group id, what waits for the last write under way."""
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[HostedGroup]:
        return iter(self._hosted.values())

    @property
    def is_full(self) -> bool:
        """Whether the limit of groups is reached."""
        return len(self._hosted) >= self._config.groups_max

    @property
    def waiting_count(self) -> int:
        """How many requests wait for an answer."""
        return len(self._waiting)

    def load(self, stored: Iterable[tuple[str, GroupRecord]] | None = None) -> None:
        """Replay records that were read; None: every stored one.

        Raises:
            UnreadableRow: a stored group cannot be read.
        """
        self._records.load(stored)

    def read(self, is_included: Includes) -> list[tuple[str, GroupRecord]]:
        """Return the stored records of the groups of some shards, for `load`; blocks.

        Raises:
            UnreadableRow: a stored group cannot be read.
        """
        return list(self._records.read(is_included))

    def stop(self, is_included: Includes) -> None:
        """Drop the groups of detached shards; requests that wait get NOT_COORDINATOR."""
        for hosted in [each for each in self if is_included(each.group_id)]:
            _retire(self._hosted.pop(hosted.group_id))
        for waiter, waiting in list(self._waiting.items()):
            if waiting.hosted is not None and is_included(waiting.hosted.group_id):
                self._refuse(waiter, NOT_COORDINATOR)

    def unload(self, is_included: Includes) -> None:
        """Forget the records of detached shards, of which none is being written any more."""
        self._records.unload(is_included)

    def close(self) -> None:
        """Answer every waiting request with its refusal and stop every timer. May be repeated."""
        self._is_closed = True
        for waiter in tuple(self._waiting):
            self._refuse(waiter)
        for hosted in self:
            _retire(hosted)

    # Groups.

    def error(self, group_id: str) -> ErrorCode:
        """Return why requests for a group are refused; NONE if its shard is attached."""
        return ErrorCode.NONE if group_id in self._hosted else self.shards.error(group_id)

    def get(self, group_id: str) -> HostedGroup | None:
        """Return a group, or None."""
        return self._hosted.get(group_id)

    def ensure(self, group_id: str) -> HostedGroup:
        """Return a group, a new empty one if there is none. The caller checks the limits."""
        hosted = self._hosted.get(group_id)
        if hosted is None:
            hosted = self.classic(ClassicGroup(group_id, self._config))
            self._hosted[group_id] = hosted
        return hosted

    def classic(self, group: ClassicGroup) -> HostedGroup:
        """Return a classic group that is not in the table yet."""
        return HostedGroup(group.group_id, lambda: group, is_classic=True)

    def consumer(self, first: ConsumerGroupRecord) -> HostedGroup:
        """Return a group of the consumer protocol that is not in the table yet.

        Args:
            first: the record that its first event is decided on.
        """
        group_id, sessions = first.group_id, MemberSessions()

        def current() -> ConsumerGroup:
            record = self._records.head(group_id)
            if not isinstance(record, ConsumerGroupRecord):
                is_new = self._hosted.get(group_id) is not hosted
                record = first if is_new else new_record(group_id, self._config)
            return ConsumerGroup(record, sessions, self._config)

        hosted = HostedGroup(group_id, current, is_classic=False)
        return hosted

    def put(self, hosted: HostedGroup) -> None:
        """Add a group; the timers of one that it replaces are stopped."""
        before = self._hosted.get(hosted.group_id)
        if before is not None:
            _retire(before)
        self._hosted[hosted.group_id] = hosted

    def deletion(self, group_id: str) -> RecordChange:
        """Return the change that deletes the record of an empty group.

        When it is durable, the group ends if it is empty then. A member that joins meanwhile keeps
        it; its records are written after the deletion.
        """
        return self._records.change(group_id, None)

    def is_writing(self, group_id: str) -> bool:
        """Whether a record of the group is being written."""
        return self._records.head(group_id) is not self._records.get(group_id)

    def empty_since_ms(self, group_id: str) -> int | None:
        """Return the wall time at which a group was stored without members; None if it was not."""
        record = self._records.head(group_id)
        return None if record is None or len(record.members) else record.saved_ms

    # Requests.

    def register(self, refused: Refused) -> int:
        """Open a waiter; `refused` makes its answer if its group cannot give one."""
        self._next_waiter += 1
        self._waiting[self._next_waiter] = _PendingRequest(refused)
        return self._next_waiter

    def run(
        self, hosted: HostedGroup, waiter: int, request: Callable[[int], Iterable[Effect]]
    ) -> Deferred[object]:
        """Let a group decide on a request; return its answer, which may come later.

        A fault closes the group, and the answer is that the waiter is refused. When the caller
        that awaits it is cancelled, the group's `abandon` is called.

        Args:
            hosted: the group.
            waiter: what `register` returned for the request.
            request: lets the group decide, at a monotonic time.
        """
        waiting = self._waiting[waiter]
        waiting.hosted, answer = hosted, waiting.answer
        self.decide(hosted, lambda now_ms: (None, request(now_ms)), None)
        if hosted.has_failed and waiter in self._waiting:
            self._refuse(waiter)
        if not answer.is_resolved:
            answer.on_cancelled = partial(self._abandon, hosted, waiter)
        return answer

    def decide(
        self,
        hosted: HostedGroup,
        request: Callable[[int], tuple[Result, Iterable[Effect]]],
        refusal: Result,
    ) -> Result:
        """Let a group decide on a request that is answered at once; return the answer.

        A fault closes the group, and the answer is `refusal`.

        Args:
            hosted: the group.
            request: lets the group decide, at a monotonic time.
            refusal: the answer if nothing was decided.
        """
        if hosted.has_failed:
            # Making it again has failed before.
            self.containment.run(NamedUnit("group", hosted.group_id), self._reload, hosted)
            return refusal
        try:
            answer, effects = request(self._clock.monotonic_ms())
            self._perform(hosted, effects)
        except Exception as error:  # noqa: BLE001 - its partial changes are dropped
            self._failed(hosted, error)
            return refusal
        return answer

    def _refuse(self, waiter: int, error: ErrorCode = UNAVAILABLE) -> None:
        waiting = self._waiting.pop(waiter, None)
        if waiting is not None:
            waiting.answer.resolve(waiting.refused(error))

    def _answer(self, waiter: int, result: object) -> None:
        waiting = self._waiting.pop(waiter, None)
        if waiting is not None:
            waiting.answer.resolve(result)

    def _abandon(self, hosted: HostedGroup, waiter: int) -> None:
        if self._waiting.pop(waiter, None) is not None:
            self._deliver(hosted, lambda now_ms: hosted.group.abandon(waiter, now_ms))

    # Effects, and the events that follow them.

    def _perform(self, hosted: HostedGroup, effects: Iterable[Effect]) -> None:
        """Perform effects of one group in order."""
        for effect in effects:
            match effect:
                case Respond(waiter, result):
                    self._answer(waiter, result)
                case Schedule(key, delay_ms):
                    _cancel(hosted, key)
                    fire = partial(self._timer_fired, hosted, key)
                    hosted.timers[key] = self._timers.call_after(delay_ms, fire)
                case Cancel(key):
                    _cancel(hosted, key)
                case Persist(record, answers):
                    self._persist(hosted.group_id, record, list(answers))
                case _:
                    assert_never(effect)

    def _persist(self, group_id: str, record: object, answers: Answers) -> None:
        """Write a record if there is one; answer when every write under way is durable."""
        if record is None:
            last = self._last_answers.get(group_id)
            if last is not None:
                last += answers
            else:
                for waiter, result in answers:
                    self._answer(waiter, result)
            return
        assert isinstance(record, ClassicGroupRecord | ConsumerGroupRecord), f"{record!r}"
        stamped = replace(record, saved_ms=self._clock.now_ms())
        write = self._records.submit(group_id, stamped)
        ended = partial(self._write_ended, group_id, stamped, write, answers)
        if write.is_resolved:  # the store has stopped
            ended()
        else:
            self._last_answers[group_id] = answers
            write.when_resolved(ended)

    def _replayed(self, group_id: str) -> None:
        """Let a group have its durable record; without one it ends if it is empty."""
        record, hosted = self._records.get(group_id), self._hosted.get(group_id)
        if record is None:
            if hosted is not None and hosted.group.is_empty:
                _retire(self._hosted.pop(group_id))
            return
        if hosted is None:
            if self.shards.error(group_id):
                return  # its shard was detached while this was being written
            hosted = self._hosted[group_id] = self._new(record)
        self._deliver(hosted, partial(_replay, hosted, record))

    def _write_ended(
        self,
        group_id: str,
        record: GroupRecord,
        write: Deferred[Exception | None],
        answers: Answers,
    ) -> None:
        """Answer what has waited for a write, once its record was replayed or has failed."""
        if self._last_answers.get(group_id) is answers:
            del self._last_answers[group_id]
        if write.result() is None:
            for waiter, result in answers:
                self._answer(waiter, result)
            return
        for waiter, _ in answers:
            self._refuse(waiter)
        hosted = self._hosted.get(group_id)
        if hosted is None or self._is_closed:
            return
        group = hosted.group
        if isinstance(group, ClassicGroup):
            durable = self._records.get(group_id)
            if isinstance(record, ClassicGroupRecord):
                before = durable if isinstance(durable, ClassicGroupRecord) else None
                self._deliver(hosted, partial(group.write_failed, record, before))
        elif not isinstance(self._records.head(group_id), ConsumerGroupRecord):
            # Its first record is what has failed: it is again what it was before.
            self.containment.run(NamedUnit("group", group_id), self._reload, hosted)

    def _timer_fired(self, hosted: HostedGroup, key: TimerKey) -> None:
        hosted.timers.pop(key, None)
        self._deliver(hosted, lambda now_ms: hosted.group.timer_fired(key, now_ms))

    def _deliver(self, hosted: HostedGroup, event: Callable[[int], Iterable[Effect]]) -> None:
        """Pass an event that is no request to a group; a fault closes that group."""
        if hosted.has_failed or self._is_closed:
            return
        try:
            self._perform(hosted, event(self._clock.monotonic_ms()))
        except Exception as error:  # noqa: BLE001 - other groups go on
            self._failed(hosted, error)

    # Faults.

    def _failed(self, hosted: HostedGroup, error: Exception) -> None:
        unit = NamedUnit("group", hosted.group_id, partial(self._close_after_fault, hosted))
        self.containment.failed(unit, error)

    def _close_after_fault(self, hosted: HostedGroup) -> None:
        hosted.has_failed = True
        _retire(hosted)
        for waiter in [each for each, one in self._waiting.items() if one.hosted is hosted]:
            self._refuse(waiter)
        self._reload(hosted)

    def _reload(self, failed: HostedGroup) -> None:
        """Make a group again of its durable record; the failed one stays if that fails too."""
        group_id = failed.group_id
        if self._hosted.get(group_id) is not failed:
            return
        record = self._records.get(group_id)
        if record is None:
            _retire(self._hosted.pop(group_id))
            self.ensure(group_id)
            return
        hosted = self._new(record)
        self._perform(hosted, _replay(hosted, record, self._clock.monotonic_ms()))
        self.put(hosted)

    def _new(self, record: GroupRecord) -> HostedGroup:
        """Return a group that has not replayed its record yet."""
        if isinstance(record, ConsumerGroupRecord):
            return self.consumer(record)
        return self.classic(ClassicGroup(record.group_id, self._config))


def _replay(hosted: HostedGroup, record: GroupRecord, now_ms: int) -> list[Effect]:
    """Replay a record, unless the group has changed its protocol since it was written."""
    match hosted.group, record:
        case ClassicGroup() as group, ClassicGroupRecord():
            return group.replay(record, now_ms)
        case ConsumerGroup() as group, ConsumerGroupRecord():
            return group.replay(record, now_ms)
    return []


def _cancel(hosted: HostedGroup, key: TimerKey) -> None:
    handle = hosted.timers.pop(key, None)
    if handle is not None:
        handle.cancel()


def _retire(hosted: HostedGroup) -> None:
    """Cancel every timer of a group that is no longer served."""
    for handle in hosted.timers.values():
        handle.cancel()
    hosted.timers.clear()

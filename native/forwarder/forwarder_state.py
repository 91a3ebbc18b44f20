"""ForwarderState: the entries of one partition in flight to another, and the next effects.

Rule: all entries in flight belong to one revision of the source. They are sent in the order of
reading, and acknowledged when all before them are confirmed. After a failure, later entries wait
for a successful resend: unsent entries are dropped, the answers of sent ones are awaited, then the
source is rewound once. Events of an older revision are ignored.
Must not know: cursors, links, clocks.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from kledger.ledger import Buffer, Position

NO_REVISION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardLimits:
    """The limits of one forwarder.

    Attributes:
        entries_in_flight_max: entries read and not acknowledged.
        bytes_in_flight_max: of their data; a single entry may be larger.
        read_entries_max: entries of one read.
        backoff_min_ms: from the first failure to the next attempt; doubles with each further one.
        backoff_max_ms: the longest delay.
    """

    entries_in_flight_max: int = 1_000
    bytes_in_flight_max: int = 16 << 20
    read_entries_max: int = 100
    backoff_min_ms: int = 100
    backoff_max_ms: int = 30_000


class SourceEntry(NamedTuple):
    """One entry with its unacknowledged records.

    Attributes:
        data: the whole stored batch.
        records: the mask of its unacknowledged records.
        batch_size: the number of its records.
    """

    position: Position
    data: Buffer
    records: int
    batch_size: int


@dataclass(frozen=True, slots=True)
class Rewind:
    """Start a new revision at the first unacknowledged entry."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next entries, or wait for them."""

    number: int
    count: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Turn an entry into the batch to send."""

    number: int
    entry: SourceEntry


@dataclass(frozen=True, slots=True)
class Send:
    """Append a batch to the target, behind the earlier ones."""

    number: int
    position: Position
    batch: Buffer


@dataclass(frozen=True, slots=True)
class MarkDelete:
    """Acknowledge everything up to an entry."""

    number: int
    entry: SourceEntry


Effect: TypeAlias = Rewind | Read | Prepare | Send | MarkDelete


class Failure(NamedTuple):
    """The error of a failed effect.

    Attributes:
        is_final: a retry does not help.
    """

    error: Exception
    is_final: bool


class Phase(Enum):
    """The phases of a forwarder.

    WAITING: until `retry_at_ms`; then REWINDING.
    REWINDING: the source is being rewound; then RUNNING, or WAITING after a failure.
    RUNNING: reading, sending and acknowledging; ends with a failure or a reset of the source.
    SETTLING: sends in flight end, no new ones begin; then WAITING or FINISHED.
    FINISHED: for good.
    """

    WAITING = "waiting"
    REWINDING = "rewinding"
    RUNNING = "running"
    SETTLING = "settling"
    FINISHED = "finished"


@dataclass(slots=True)
class _OutstandingEntry:
    entry: SourceEntry
    is_prepared: bool = False
    batch: Buffer | None = None
    is_confirmed: bool = False


class ForwarderState:
    """The state of one forwarder; `decide` is called after every event."""

    def __init__(self, limits: ForwardLimits) -> None:
        self.phase = Phase.WAITING
        self.number = NO_REVISION
        self.retry_at_ms = 0
        self.marked_upto: Position | None = None
        self.is_marking = False
        self.forwarded_count = 0
        self._limits = limits
        self._waiting: dict[Position, _OutstandingEntry] = {}
        self._sent: dict[Position, _OutstandingEntry] = {}
        self._forwarded: dict[Position, None] = {}  # confirmed, and perhaps not acknowledged
        self._bytes = 0
        self._unprepared: list[SourceEntry] = []
        self._outstanding = 0
        self._to_mark: SourceEntry | None = None
        self._is_reading = False
        self._has_ended = False
        self._is_closing = False
        self._failures: list[tuple[Position | None, Failure]] = []
        self._attempts = 0

    @property
    def error(self) -> Exception | None:
        """The final error; None when it was closed, or the source has ended."""
        failure = self._first_failure()
        return failure.error if failure is not None and failure.is_final else None

    @property
    def in_flight(self) -> int:
        """How many entries were read and may not be acknowledged yet."""
        return len(self._waiting) + len(self._sent)

    # Decisions

    def decide(self, now_ms: int, *, sends_in_flight_max: int) -> list[Effect]:
        """Return the effects to begin now; each is returned once.

        Args:
            now_ms: a monotonic time, as `retry_at_ms`.
            sends_in_flight_max: how many sends the target accepts at once.
        """
        if self.phase is Phase.SETTLING and self._is_settled():
            self._settle(now_ms)
        if self.phase is Phase.WAITING and now_ms >= self.retry_at_ms:
            self.phase = Phase.REWINDING
            return [Rewind()]
        effects: list[Effect] = []
        if self.phase is Phase.RUNNING:
            self._prepare(effects)
            self._send(effects, sends_in_flight_max)
            self._read_on(effects)
        self._mark(effects)
        if self.phase is Phase.RUNNING and self._is_over():
            self.phase = Phase.FINISHED
        return effects

    def _prepare(self, effects: list[Effect]) -> None:
        effects += [Prepare(self.number, entry) for entry in self._unprepared]
        self._unprepared.clear()

    def _send(self, effects: list[Effect], sends_in_flight_max: int) -> None:
        """Send the first entries that are prepared; an entry without a batch counts as sent."""
        while self._waiting:
            position, item = next(iter(self._waiting.items()))
            if not item.is_prepared:
                break
            if item.batch is None:
                item.is_confirmed = True
            elif self._outstanding < sends_in_flight_max:
                self._outstanding += 1
                effects.append(Send(self.number, position, item.batch))
                item.batch = None
            else:
                break
            self._sent[position] = self._waiting.pop(position)
        self._advance()

    def _read_on(self, effects: list[Effect]) -> None:
        limits = self._limits
        count = min(limits.read_entries_max, limits.entries_in_flight_max - self.in_flight)
        bytes_max = limits.bytes_in_flight_max - self._bytes
        is_over = self._is_reading or self._has_ended or self._is_closing
        if count > 0 and bytes_max > 0 and not is_over:
            self._is_reading = True
            effects.append(Read(self.number, count, bytes_max))

    def _mark(self, effects: list[Effect]) -> None:
        if self._to_mark is not None and not self.is_marking:
            self.is_marking = True
            effects.append(MarkDelete(self.number, self._to_mark))
            self._to_mark = None

    def _is_over(self) -> bool:
        is_idle = not self.in_flight and self._to_mark is None and not self.is_marking
        return is_idle and (self._has_ended or self._is_closing)

    # Events

    def rewound(self, number: int) -> None:
        """The source was rewound and has this revision."""
        assert self.phase is Phase.REWINDING, self.phase
        self.phase = Phase.RUNNING
        self.number = number
        self._is_reading = False

    def rewind_failed(self, failure: Failure) -> None:
        """The source could not be rewound, or the target not restarted."""
        assert self.phase is Phase.REWINDING, self.phase
        self._fail(None, failure)

    def read(self, number: int, entries: list[SourceEntry]) -> None:
        """A read has returned these entries."""
        if not self._is_running(number):
            return
        self._is_reading = False
        for entry in entries:
            was_forwarded = entry.position in self._forwarded
            self._waiting[entry.position] = _OutstandingEntry(entry, is_prepared=was_forwarded)
            self._bytes += len(entry.data)
            if not was_forwarded:
                self._unprepared.append(entry)

    def read_failed(self, number: int, failure: Failure) -> None:
        """The source could not be read."""
        if self._is_running(number):
            self._fail(None, failure)

    def ended(self, number: int) -> None:
        """The source has no more entries, and will have none."""
        if self._is_running(number):
            self._is_reading = False
            self._has_ended = True

    def prepared(self, number: int, position: Position, batch: Buffer | None) -> None:
        """An entry is ready to be sent; None: there is nothing to send."""
        if self._is_running(number) and position in self._waiting:
            item = self._waiting[position]
            item.is_prepared, item.batch = True, batch

    def prepare_failed(self, number: int, position: Position, failure: Failure) -> None:
        """An entry could not be prepared."""
        if self._is_running(number):
            self._fail(position, failure)

    def confirmed(self, number: int, position: Position) -> None:
        """The target has stored a batch, and all that were sent before it."""
        self._outstanding -= 1
        self._attempts = 0
        self.forwarded_count += 1
        if number == self.number and position in self._sent:
            for each in [each for each in self._sent if each <= position]:
                self._sent[each].is_confirmed = True
                self._forwarded[each] = None
            self._advance()

    def send_failed(self, number: int, position: Position, failure: Failure) -> None:
        """The target did not store a batch, nor those that were sent after it."""
        self._outstanding -= 1
        if number == self.number:
            self._fail(position, failure)

    def send_dropped(self) -> None:
        """A batch was not sent, because the source was reset just before."""
        self._outstanding -= 1
        self.outdated()

    def marked(self, number: int, position: Position) -> None:
        """Everything up to an entry is acknowledged."""
        if number == self.number:
            self.is_marking = False
            self.marked_upto = position
            while self._forwarded and (first := next(iter(self._forwarded))) <= position:
                del self._forwarded[first]

    def mark_failed(self, number: int, failure: Failure) -> None:
        """The acknowledgement failed, or its outcome is unknown."""
        if number == self.number:
            self.is_marking = False
            self._fail(None, failure)

    def outdated(self) -> None:
        """The source was reset: all entries that were read before are dropped."""
        if self.phase in {Phase.RUNNING, Phase.SETTLING}:
            self.phase = Phase.SETTLING
            self.number = NO_REVISION
            self._drop_unsent()
            self._sent.clear()
            self._forwarded.clear()
            self._to_mark = None
            self.is_marking = False

    def close(self) -> None:
        """Finish when all sent batches are acknowledged; send no more."""
        self._is_closing = True
        self._drop_unsent()
        if self.phase in {Phase.WAITING, Phase.REWINDING}:
            self.phase = Phase.FINISHED

    # Helpers

    def _is_running(self, number: int) -> bool:
        return self.phase is Phase.RUNNING and number == self.number

    def _advance(self) -> None:
        """Acknowledge the entries that are confirmed without a gap."""
        while self._sent:
            position, item = next(iter(self._sent.items()))
            if not item.is_confirmed:
                break
            self._to_mark = item.entry
            self._bytes -= len(item.entry.data)
            del self._sent[position]

    def _fail(self, position: Position | None, failure: Failure) -> None:
        """Stop before a position; batches that were sent before it can still be confirmed."""
        self._failures.append((position, failure))
        self.phase = Phase.SETTLING
        self._drop_unsent()
        if position is not None:
            for sent in [each for each in self._sent if each >= position]:
                del self._sent[sent]

    def _drop_unsent(self) -> None:
        self._waiting.clear()
        self._unprepared.clear()

    def _is_settled(self) -> bool:
        return not self._outstanding and self._to_mark is None and not self.is_marking

    def _settle(self, now_ms: int) -> None:
        """Rewind or finish, now that nothing is in flight."""
        assert not self._sent, f"{len(self._sent)} entries are sent and have no answer"
        failure = self._first_failure()
        self._bytes = 0
        self.number = NO_REVISION
        if self._is_closing or (failure is not None and failure.is_final):
            self.phase = Phase.FINISHED
            return
        self._failures.clear()
        self.phase = Phase.WAITING
        self.retry_at_ms = now_ms
        if failure is not None:
            delay_ms = self._limits.backoff_min_ms << min(self._attempts, 30)
            self.retry_at_ms += min(delay_ms, self._limits.backoff_max_ms)
            self._attempts += 1

    def _first_failure(self) -> Failure | None:
        """Return the failure at the lowest position: it is the cause of the others."""
        if not self._failures:
            return None
        return min(self._failures, key=lambda each: (each[0] is not None, each[0] or 0))[1]

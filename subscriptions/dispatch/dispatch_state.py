"""Dispatch state: what every type of subscription knows of its consumers, and how it is asked.

Rule: a state is told what happened and says what should be read and who gets what of it; it reads
nothing itself, and all that it says is plain values. What it was not given back, it still knows.
Must not know: cursors, clocks, how anything is delivered. Theory: docs/ARCHITECTURE.md,
"Dispatchers".
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kledger.ledger import Entry, Position
from kledger.subscriptions.dispatch.consumer_state import ConsumerState
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.model import ConsumerOptions, Delivery, RecordMask

DeliveriesByConsumer: TypeAlias = dict[int, list[Delivery]]
"""What each consumer gets, by its number, in order."""

AVERAGE_SCALE = 16
"""Averages of records per entry are kept in sixteenths."""


@dataclass(frozen=True, slots=True)
class RewindCursor:
    """The cursor has to go back to what is not acknowledged, after a while; then `rewound`."""

    delay_ms: int = 0


class DispatchState(ABC):
    """One per dispatcher, of the type of its subscription.

    Attributes:
        consumers: by number, in the order in which they joined.
        redelivered: records handed out that had been handed out before.
    """

    is_limited = True
    """Whether the limits of unacknowledged records hold for the type."""

    def __init__(self, options: DispatchOptions) -> None:
        self.options = options
        self.consumers: dict[int, ConsumerState] = {}
        self.redelivered = 0
        self._joined = 0
        self._average = AVERAGE_SCALE

    # Consumers

    def add(self, options: ConsumerOptions) -> tuple[int, RewindCursor | None]:
        """Let a consumer join; return its number. Raises ConsumerBusy and others."""
        consumer = ConsumerState(self._joined, options, is_limited=self.is_limited)
        rewind = self._join(consumer)
        self._joined += 1
        return consumer.number, rewind

    def remove(self, number: int) -> RewindCursor | None:
        """Let a consumer go that is here."""
        return self._leave(self.consumers.pop(number))

    @abstractmethod
    def _join(self, consumer: ConsumerState) -> RewindCursor | None:
        """Put a consumer among the others; raise before anything is changed."""

    @abstractmethod
    def _leave(self, consumer: ConsumerState) -> RewindCursor | None:
        """Let what a consumer had go elsewhere; it is not among the others any more."""

    @abstractmethod
    def is_active(self, number: int) -> bool:
        """Tell whether a consumer gets anything."""

    @abstractmethod
    def redeliver(self, number: int, masks: Sequence[RecordMask] | None) -> RewindCursor | None:
        """Hand out again what a consumer has: these pieces, or all."""

    # What should be read

    @property
    def is_rewind_due(self) -> bool:
        """Whether nothing is read before the cursor went back."""
        return False

    @abstractmethod
    def rewound(self) -> None:
        """The cursor went back: all that is not acknowledged will be read, and nothing else."""

    @abstractmethod
    def entries_wanted(self) -> int:
        """Return how many entries should be read on; 0: none."""

    # What was read

    @abstractmethod
    def dispatch(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], now_ms: int
    ) -> tuple[DeliveriesByConsumer, int]:
        """Say who gets what of entries that were read on.

        Args:
            entries: in order.
            remaining: which records are owed, of the entries of which not all are.
            now_ms: the wall time.

        Returns:
            Who gets what, and how many entries are dealt with; the others are to be offered again,
            before any that come later.
        """

    # What was acknowledged

    @abstractmethod
    def acknowledged(self, masks: Iterable[RecordMask]) -> bool:
        """Records need not come again, whoever has them.

        Returns:
            Whether that may have made room: whether anything was held up by them.
        """

    @abstractmethod
    def acknowledged_upto(self, position: Position, records: int) -> bool:
        """Nor does anything before a position, nor these records of that entry; as before."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all but consumers and permits: the cursor's positions were set."""

    # Numbers

    @property
    @abstractmethod
    def unacknowledged(self) -> int:
        """How many records are handed out and not acknowledged."""

    @property
    def delayed(self) -> int:
        """How many records wait for their time."""
        return 0

    @property
    def next_due_ms(self) -> int | None:
        """When the first of the delayed records is due."""
        return None

    def release_due(self, now_ms: int) -> None:
        """Let the delayed records that are due be handed out."""
        return

    # For the types

    def _entries_for(self, records: int) -> int:
        """Return how many entries hold about so many records."""
        if records <= 0:
            return 0
        entries = records * AVERAGE_SCALE // self._average
        return min(max(entries, 1), self.options.read_entries_max)

    def _learn_batch_size(self, entries: int, records: int) -> None:
        """Learn how many records an entry has."""
        if entries:
            seen = records * AVERAGE_SCALE // entries
            self._average = max((3 * self._average + seen) // 4, AVERAGE_SCALE)


class ReplayingState(DispatchState):
    """Of the types where single entries come again; others go back with the cursor."""

    @abstractmethod
    def positions_to_replay(self) -> list[Position]:
        """Return which entries should be read again now, ascending."""

    @abstractmethod
    def dispatch_replayed(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], gone: Iterable[Position]
    ) -> DeliveriesByConsumer:
        """Say who gets what of entries that were read again.

        Args:
            entries: ascending; what nobody can take now stays wanted.
            remaining: as for `dispatch`.
            gone: entries that need not be handed out any more.
        """

"""Dispatch state: the interface of the states of all subscription types, and what they share.

Rule: a state takes events, and returns plain values: what should be read, and which consumer gets
which records of it. It reads nothing itself.
Must not know: cursors, clocks, how anything is delivered. Theory: docs/ARCHITECTURE.md,
"Subscriptions and dispatch".
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
"""The deliveries of each consumer, by its number, in order."""

AVERAGE_SCALE = 16
"""Averages of records per entry are kept in sixteenths."""


@dataclass(frozen=True, slots=True)
class RewindCursor:
    """The dispatcher must rewind the cursor after a delay, and then call `rewound`."""

    delay_ms: int = 0


class DispatchState(ABC):
    """One per dispatcher, of the type of its subscription.

    Attributes:
        consumers: by number, in the order in which they joined.
        redelivered: how many records were delivered again.
    """

    is_limited = True
    """Whether the type has limits of unacknowledged records."""

    def __init__(self, options: DispatchOptions) -> None:
        self.options = options
        self.consumers: dict[int, ConsumerState] = {}
        self.redelivered = 0
        self._joined = 0
        self._average = AVERAGE_SCALE

    # Consumers

    def add(self, options: ConsumerOptions) -> tuple[int, RewindCursor | None]:
        """Add a consumer; return its number. Raises as `Dispatcher.add_consumer`."""
        consumer = ConsumerState(self._joined, options, is_limited=self.is_limited)
        rewind = self._join(consumer)
        self._joined += 1
        return consumer.number, rewind

    def remove(self, number: int) -> RewindCursor | None:
        """Remove a consumer."""
        return self._leave(self.consumers.pop(number))

    @abstractmethod
    def _join(self, consumer: ConsumerState) -> RewindCursor | None:
        """Add a consumer to `consumers`, or raise before anything is changed."""

    @abstractmethod
    def _leave(self, consumer: ConsumerState) -> RewindCursor | None:
        """Take back the records of a consumer that was removed from `consumers`."""

    @abstractmethod
    def is_active(self, number: int) -> bool:
        """Whether a consumer may get records."""

    @abstractmethod
    def redeliver(self, number: int, masks: Sequence[RecordMask] | None) -> RewindCursor | None:
        """Redeliver records that a consumer has: these, or all (None)."""

    # Reading

    @property
    def is_rewind_due(self) -> bool:
        """Whether the cursor must be rewound before anything is read."""
        return False

    @abstractmethod
    def rewound(self) -> None:
        """The cursor was rewound: everything that is not acknowledged will be read again."""

    @abstractmethod
    def entries_wanted(self) -> int:
        """Return how many new entries should be read; 0: none."""

    # Dispatching

    @abstractmethod
    def dispatch(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], now_ms: int
    ) -> tuple[DeliveriesByConsumer, int]:
        """Dispatch new entries.

        Args:
            entries: in order.
            remaining: the unacknowledged records of entries that are acknowledged in part.
            now_ms: the wall time.

        Returns:
            The deliveries, and how many entries were taken; the others must be passed again, before
            any that follow them.
        """

    # Acknowledging

    @abstractmethod
    def acknowledged(self, masks: Iterable[RecordMask]) -> bool:
        """Forget acknowledged records, whichever consumer has them.

        Returns:
            Whether records can be dispatched now that could not before.
        """

    @abstractmethod
    def acknowledged_upto(self, position: Position, records: int) -> bool:
        """Forget all before a position and these records of its entry; as `acknowledged`."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all but consumers and permits: the position of the cursor was set."""

    # Numbers

    @property
    @abstractmethod
    def unacknowledged(self) -> int:
        """How many records are delivered and not acknowledged."""

    @property
    def delayed(self) -> int:
        """How many delayed records are not due yet."""
        return 0

    @property
    def next_due_ms(self) -> int | None:
        """The wall time at which the first delayed record is due; None: there is none."""
        return None

    def release_due(self, now_ms: int) -> None:
        """Make delayed records that are due available to `dispatch_replayed`."""
        return

    # For the subclasses

    def _entries_for(self, records: int) -> int:
        """Return how many entries have about that many records."""
        if records <= 0:
            return 0
        entries = records * AVERAGE_SCALE // self._average
        return min(max(entries, 1), self.options.read_entries_max)

    def _estimate_batch_size(self, entries: int, records: int) -> None:
        """Update the average number of records per entry."""
        if entries:
            seen = records * AVERAGE_SCALE // entries
            self._average = max((3 * self._average + seen) // 4, AVERAGE_SCALE)


class ReplayingState(DispatchState):
    """A state of a type that redelivers single records; the others rewind the cursor."""

    @abstractmethod
    def positions_to_replay(self) -> list[Position]:
        """Return which entries should be read again now, ascending."""

    @abstractmethod
    def dispatch_replayed(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], gone: Iterable[Position]
    ) -> DeliveriesByConsumer:
        """Dispatch entries that were read again.

        Args:
            entries: ascending; records for which no consumer has room stay in the queue.
            remaining: as for `dispatch`.
            gone: entries that are acknowledged or deleted.
        """

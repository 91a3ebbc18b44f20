"""Single active state: exclusive and failover, where one consumer gets all records, in order.

Rule: only the active consumer gets records. A new active consumer begins after the cursor was
rewound: everything that is not acknowledged is redelivered, in order.
Must not know: cursors, clocks. Source: Pulsar's PersistentDispatcherSingleActiveConsumer.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from kledger.ledger import Entry, Position
from kledger.subscriptions.dispatch.consumer_pick import pick_exclusive, pick_failover
from kledger.subscriptions.dispatch.consumer_state import ConsumerState
from kledger.subscriptions.dispatch.dispatch_state import (
    DeliveriesByConsumer,
    DispatchState,
    RewindCursor,
)
from kledger.subscriptions.dispatch.redelivery_counts_state import RewindCounts
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import index_count
from kledger.subscriptions.errors import ConsumerBusy
from kledger.subscriptions.model import ALL, Delivery, RecordMask

UNACKED_COUNTED_MAX = 100_000
"""At most so many entries count as unacknowledged; only the statistics depend on it."""


class SingleActiveState(DispatchState):
    """The state of both types; see `DispatchState`."""

    is_limited = False

    def __init__(self, options: DispatchOptions, *, is_exclusive: bool) -> None:
        super().__init__(options)
        self._is_exclusive = is_exclusive
        self._active: int | None = None
        self._is_rewind_due = False
        self._marks = RewindCounts()
        self._pending: OrderedDict[Position, int] = OrderedDict()
        self._holder: int | None = None  # the consumer that has what is pending
        self._unacknowledged = 0

    def _join(self, consumer: ConsumerState) -> RewindCursor | None:
        if self._is_exclusive and self.consumers:
            raise ConsumerBusy(f"there is an exclusive consumer, {consumer.name} cannot join")
        self.consumers[consumer.number] = consumer
        return self._choose()

    def _leave(self, consumer: ConsumerState) -> RewindCursor | None:
        if consumer.number == self._holder:
            self._forget_pending()
        return self._choose()

    def _choose(self) -> RewindCursor | None:
        """Pick the active consumer; return the rewind that a change needs."""
        before = self._active
        candidates = self.consumers.values()
        if self._is_exclusive:
            chosen = pick_exclusive(candidates)
        else:
            chosen = pick_failover(candidates, self.options.partition_index)
        self._active = chosen.number if chosen is not None else None
        if self._active == before:
            return None
        self._is_rewind_due = chosen is not None
        if chosen is None:
            return None
        return RewindCursor(self.options.failover_delay_ms if before is not None else 0)

    def is_active(self, number: int) -> bool:
        """Whether it is the active consumer."""
        return number == self._active

    def redeliver(self, number: int, masks: Sequence[RecordMask] | None) -> RewindCursor | None:
        """Rewind to everything that is not acknowledged, whatever the masks are."""
        if number != self._active or self._is_rewind_due or masks == []:
            return None
        self._is_rewind_due = True
        return RewindCursor()

    @property
    def is_rewind_due(self) -> bool:
        """Whether the cursor must be rewound before the active consumer gets records."""
        return self._is_rewind_due

    def rewound(self) -> None:
        """Begin again with everything that is not acknowledged."""
        self._is_rewind_due = False
        self._marks.rewind()
        self._forget_pending()

    def entries_wanted(self) -> int:
        """Return for how many entries the active consumer has permits."""
        if self._active is None or self._is_rewind_due:
            return 0
        return self._entries_for(self.consumers[self._active].permits)

    def dispatch(
        self, entries: Sequence[Entry], remaining: Mapping[Position, int], now_ms: int
    ) -> tuple[DeliveriesByConsumer, int]:
        """Deliver entries to the active consumer, up to its permits."""
        if self._active is None or self._is_rewind_due:
            return {}, 0
        consumer = self.consumers[self._active]
        marks, pending = self._marks, self._pending
        deliveries: list[Delivery] = []
        taken = total = 0
        for position, data in entries:
            if consumer.permits <= 0:
                break
            taken += 1
            full = (1 << index_count(data)) - 1
            records = full & remaining.get(position, ALL) if remaining else full
            if not records:
                continue
            count = records.bit_count()
            times = marks.count_of(position)
            if times:
                self.redelivered += count
            deliveries.append(Delivery(position, data, ALL if records == full else records, times))
            consumer.permits -= count
            total += count
            if len(pending) < UNACKED_COUNTED_MAX:
                pending[position] = records
                self._unacknowledged += count
        if not deliveries:
            return {}, taken
        self._holder = consumer.number
        marks.reach(deliveries[-1].position)
        self._estimate_batch_size(len(deliveries), total)
        return {consumer.number: deliveries}, taken

    def acknowledged(self, masks: Iterable[RecordMask]) -> bool:
        """Count fewer pending records; nothing waits for that."""
        for position, records in masks:
            before = self._pending.get(position)
            if before is not None:
                self._unacknowledged -= (before & records).bit_count()
                if before & ~records:
                    self._pending[position] = before & ~records
                else:
                    del self._pending[position]
        return False

    def acknowledged_upto(self, position: Position, records: int) -> bool:
        """Count fewer pending records, most often the oldest ones."""
        pending = self._pending
        while pending:
            first = next(iter(pending))
            if first >= position:
                break
            self._unacknowledged -= pending.pop(first).bit_count()
        self.acknowledged([RecordMask(position, records)])
        self._marks.forget_before(position)
        return False

    def clear(self) -> None:
        """Forget pending records and redelivery counts."""
        self._marks.clear()
        self._forget_pending()

    @property
    def unacknowledged(self) -> int:
        """How many delivered records are not acknowledged, up to `UNACKED_COUNTED_MAX` entries."""
        return self._unacknowledged

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._unacknowledged = 0

"""A driver of a dispatch state: a cursor of plain lists, where every step is one call.

It does what the dispatcher does, but a test begins and ends the reads.
"""

from kledger.ledger import Entry, Position
from kledger.subscriptions.dispatch.dispatch_state import ReplayingState, RewindCursor
from kledger.subscriptions.dispatch.dispatcher import state_for
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import mask_of
from kledger.subscriptions.model import ConsumerOptions, SubscriptionType
from tests.subscriptions.dispatch.builders import DeliveryModel, Record, data_of, masks_of


class DispatchDriver:
    """`next` is the number of the entry that is read next; `number` counts revisions."""

    def __init__(self, kind: SubscriptionType, options: DispatchOptions) -> None:
        self.state = state_for(kind, options)
        self.model = DeliveryModel(kind, options)
        self.entries: list[Entry] = []
        self.next = 0
        self.number = 0
        self.now_ms = 1_000
        self.reading: tuple[int, int] | None = None
        self.replaying: tuple[int, list[Position]] | None = None
        self.held: list[Entry] = []
        self.is_switching = False
        self.unreported: set[Record] = set()

    # What comes from outside

    def append(self, keys: tuple[bytes | None, ...], delay_ms: int | None = None) -> None:
        due_ms = None if delay_ms is None else self.now_ms + delay_ms
        position = Position(1, len(self.entries))
        self.entries.append(Entry(position, data_of(keys, due_ms)))
        self.model.appended(position, keys, due_ms)

    def join(self, options: ConsumerOptions) -> int:
        number, rewind = self.state.add(options)
        self.model.joined(number, options)
        self.perform(rewind)
        return number

    def leave(self, number: int) -> None:
        self.model.left(number)
        self.perform(self.state.remove(number))
        if not self.state.consumers:
            self.is_switching = False
            self.held = []

    def add_permits(self, number: int, count: int) -> None:
        self.state.consumers[number].add_permits(count)
        self.model.consumers[number].permits += count

    def acknowledge(self, records: set[Record]) -> None:
        """Acknowledge records in the cursor; `report` applies them to the state."""
        self.unreported |= records
        self.model.unacknowledged -= records

    def report(self) -> None:
        """Apply acknowledged records to the state."""
        records, self.unreported = self.unreported, set()
        self.model.acknowledged(records)
        self.state.acknowledged(masks_of(sorted(records)))

    def redeliver(self, number: int, records: set[Record] | None) -> None:
        model_consumer = self.model.consumers[number]
        rewind = self.state.redeliver(
            number, None if records is None else masks_of(sorted(records))
        )
        if rewind is None:
            back = model_consumer.held if records is None else records & model_consumer.held
            if self.state.is_limited:
                self.model.lost(number, back)
        self.perform(rewind)

    def reset(self, first: Position) -> None:
        """Remove all consumers and set the position, as a subscription does."""
        for number in list(self.state.consumers):
            self.leave(number)
        self.report()
        self.held = []
        self.number += 1
        self.state.clear()
        self.next = first.entry_id
        self.model.was_reset(first)

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.state.release_due(self.now_ms)

    # What a dispatcher does

    def perform(self, rewind: RewindCursor | None) -> None:
        if rewind is None:
            return
        if rewind.delay_ms:
            self.is_switching = True
        else:
            self.rewind_cursor()

    def rewind_cursor(self) -> None:
        self.is_switching = False
        self.number += 1
        self.held = []
        unacknowledged = [position.entry_id for position, _ in self.model.unacknowledged]
        self.next = min(unacknowledged, default=len(self.entries))
        self.state.rewound()
        self.model.rewound()

    def begin_read(self) -> None:
        self.offer()
        if self.reading is None and not self.held and not self.state.is_rewind_due:
            count = self.state.entries_wanted()
            if count:
                self.reading = self.number, count

    def end_read(self) -> None:
        if self.reading is None:
            return
        (number, count), self.reading = self.reading, None
        if number == self.number:
            while self.next < len(self.entries) and len(self.held) < count:
                found = self.entries[self.next]
                self.next += 1
                if self.unacknowledged_of(found):
                    self.held.append(found)
            self.offer()

    def offer(self) -> None:
        self.held = [each for each in self.held if self.unacknowledged_of(each)]
        if self.held:
            out, taken = self.state.dispatch(
                self.held, self.unacknowledged_parts(self.held), self.now_ms
            )
            self.held = self.held[taken:]
            assert not (out and self.is_switching), "the next one has to wait"
            self.model.check_delivered(out, self.now_ms)

    def begin_replay(self) -> None:
        if not isinstance(self.state, ReplayingState):
            return
        if self.replaying is None and not self.state.is_rewind_due:
            positions = self.state.positions_to_replay()
            assert positions == sorted(set(positions))
            if positions:
                self.replaying = self.number, positions

    def end_replay(self) -> None:
        if self.replaying is None or not isinstance(self.state, ReplayingState):
            return
        (number, positions), self.replaying = self.replaying, None
        if number == self.number:
            found = [self.entries[each.entry_id] for each in positions]
            entries = [each for each in found if self.unacknowledged_of(each)]
            gone = {each.position for each in found if not self.unacknowledged_of(each)}
            out = self.state.dispatch_replayed(entries, self.unacknowledged_parts(entries), gone)
            self.model.check_delivered(out, self.now_ms)

    def unacknowledged_of(self, entry: Entry) -> int:
        return mask_of(index for at, index in self.model.unacknowledged if at == entry.position)

    def unacknowledged_parts(self, entries: list[Entry]) -> dict[Position, int]:
        """The unacknowledged records of entries that are acknowledged in part."""
        return {
            each.position: self.unacknowledged_of(each)
            for each in entries
            if self.unacknowledged_of(each)
            != mask_of(index for at, index in self.model.keys if at == each.position)
        }

    def run(self) -> bool:
        """Do everything that can be done; tell whether anything was."""
        before = sum(self.model.times.values()), self.next
        if self.is_switching:
            self.rewind_cursor()
        self.begin_replay()
        self.end_replay()
        self.begin_read()
        self.end_read()
        return (sum(self.model.times.values()), self.next) != before

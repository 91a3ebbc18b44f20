"""Sharing model: one subscription, its consumers, and the records delivered to each.

Rule: a record is pending with one consumer at a time, and with none once it is acknowledged. For
exclusive and failover, deliveries are in order and without a gap, and begin with the first
unacknowledged record after a rewind. For key_shared, a record is not delivered while an earlier
record of its key is pending with another consumer, or undelivered.
Must not know: how the dispatcher chooses consumers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kledger.ledger import Position
from kledger.subscriptions.model import Delivery, RecordMask, SubscriptionType
from kledger.subscriptions.subscription import Subscription, SubscriptionConsumer
from tests.simulation.cursor_model import CursorModel
from tests.simulation.entries import Key
from tests.simulation.invariants import InvariantBroken
from tests.simulation.log_model import HandleModel
from tests.simulation.store_model import StoreModel

Record = tuple[Position, int]
"""An entry and the index of a record in it."""

SINGLE = {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER}


@dataclass(slots=True, eq=False)
class ConsumerModel:
    """One consumer; `hold` is its handle of the subscription while it is connected."""

    name: str
    type: SubscriptionType
    unacked_max: int
    hold: SubscriptionConsumer | None = None
    permits: int = 0
    records: set[Record] = field(default_factory=set)

    def __str__(self) -> str:
        return f"consumer {self.name}"


class SharingModel:
    """One opening of a subscription."""

    def __init__(
        self,
        subscription: Subscription,
        cursor: CursorModel,
        handle: HandleModel,
        model: StoreModel,
        unacked_max: int,
    ) -> None:
        """Args: unacked_max: of all consumers together."""
        self.subscription = subscription
        self.cursor = cursor
        self.handle = handle
        self.consumers: list[ConsumerModel] = []
        self.unacked_max = unacked_max
        self._model = model
        self._given: set[Record] = set()
        self._last: Position | None = None
        self._may_go_back = False

    def __str__(self) -> str:
        return f"{self.handle} subscription {self.subscription.name}"

    # Consumers

    def join(self, consumer: ConsumerModel, hold: SubscriptionConsumer) -> None:
        """Record that a consumer joined; it gets nothing before it has permits."""
        consumer.hold = hold
        self.consumers.append(consumer)
        self._may_go_back = True

    def leave(self, consumer: ConsumerModel) -> None:
        """Record that a consumer left or was disconnected; its records are pending no more."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        consumer.records.clear()
        self._may_go_back = True

    def redeliver(self, consumer: ConsumerModel, pieces: Sequence[RecordMask] | None) -> None:
        """Record a request for redelivery: of these records, or of all that are pending."""
        self._may_go_back = True
        if pieces is None or consumer.type in SINGLE:
            consumer.records.clear()
        else:
            for position, mask in pieces:
                consumer.records -= {(position, at) for at in indexes(mask)}

    def acknowledged(self) -> None:
        """Record acknowledgements: acknowledged records are pending no more."""
        for consumer in self.consumers:
            gone = {each for each in consumer.records if not self._is_unacknowledged(each)}
            consumer.records -= gone

    def cleared(self) -> set[Record]:
        """Record that the position is being set, which resets counts. Return the old counts."""
        given, self._given = self._given, set()
        self._last = None
        return given

    def not_cleared(self, given: set[Record]) -> None:
        """Record that the position was not set, or that this is unknown: counts may continue."""
        self._given |= given

    # Deliveries

    def take(self, consumer: ConsumerModel, deliveries: Sequence[Delivery]) -> None:
        """Check a delivery."""
        if consumer not in self.consumers or consumer.hold is None or consumer.hold.is_ended:
            raise InvariantBroken(f"{self}: {consumer} gets something, but has left")
        if self.subscription.is_fenced or self.subscription.cursor.revision.is_running:
            raise InvariantBroken(
                f"{self}: {consumer} gets something while the position is being set"
            )
        self.cursor.follow()  # the call that set the position may not have returned yet
        before: Position | None = None
        for each in deliveries:
            # Records of one entry are delivered apart if some were delivered before.
            if consumer.permits <= 0 and each.position != before:
                raise InvariantBroken(f"{self}: {consumer} gets {each.position} without a permit")
            self._take_one(consumer, each)
            before = each.position

    def _take_one(self, consumer: ConsumerModel, delivery: Delivery) -> None:
        position = delivery.position
        self._model.recognise(self.handle.log, position, bytes(delivery.data))
        unacknowledged = self.unacknowledged_of(position)
        count = len(self._keys_of(position))
        found = {(position, at) for at in indexes(delivery.records & ((1 << count) - 1))}
        what = f"{self}: {consumer} gets {position} {sorted(at for _, at in found)}"
        if not found or not found <= unacknowledged:
            raise InvariantBroken(
                f"{what}, unacknowledged is {sorted(at for _, at in unacknowledged)}"
            )
        if delivery.redelivery_count and not found & self._given:
            raise InvariantBroken(f"{what}, never delivered before, as a redelivery")
        if consumer.type in SINGLE:
            self._check_single(what, position, found == unacknowledged)
        else:
            self._check_shared(what, consumer, found)
            self._check_limits(what, consumer, position)
        if consumer.type is SubscriptionType.KEY_SHARED:
            self._check_keys(what, consumer, found)
        consumer.permits -= len(found)
        consumer.records |= found
        self._given |= found

    def _check_single(self, what: str, position: Position, is_whole: bool) -> None:
        """Check the order: without a gap, after a rewind from the first unacknowledged on."""
        if not is_whole:
            raise InvariantBroken(f"{what}, and not all unacknowledged records of it")
        before = [each for each in self._unacknowledged_positions() if each < position]
        begins = self._may_go_back and not before
        if not begins and (self._last is None or before[-1:] > [self._last]):
            raise InvariantBroken(
                f"{what} after {self._last}, unacknowledged before it: {before[-3:]}"
            )
        if self._last is not None and position <= self._last:
            if not begins:
                raise InvariantBroken(f"{what} after {self._last}")
            self._may_go_back = False
        for consumer in self.consumers:
            consumer.records = {each for each in consumer.records if each[0] < position}
        self._last = position

    def _check_shared(self, what: str, consumer: ConsumerModel, found: set[Record]) -> None:
        for other in self.consumers:
            if twice := found & other.records:
                raise InvariantBroken(f"{what}, but {other} has {sorted(twice)}")

    def _check_limits(self, what: str, consumer: ConsumerModel, position: Position) -> None:
        """Check the limits: a consumer at its limit gets at most the rest of an entry.

        Entries of one tick are decided in their order, and delivered consumer by consumer.
        """
        before = [
            sum(each[0] < position for each in other.records)
            for other in (consumer, *self.consumers)
        ]
        if 0 < consumer.unacked_max <= before[0]:
            raise InvariantBroken(f"{what}, and has {before[0]} of {consumer.unacked_max}")
        if 0 < self.unacked_max <= sum(before[1:]):
            raise InvariantBroken(
                f"{what}, all together have {sum(before[1:])} of {self.unacked_max}"
            )

    def _check_keys(self, what: str, consumer: ConsumerModel, found: set[Record]) -> None:
        """Check that earlier records of a key are neither pending elsewhere nor undelivered."""
        keys = {self._key_of(each) for each in found} - {None}
        newest = max(found)
        for position in self._unacknowledged_positions():
            for each in sorted(self.unacknowledged_of(position)):
                key = self._key_of(each)
                if key not in keys or each >= newest or each in found | consumer.records:
                    continue
                if any(self._key_of(later) == key and later > each for later in found):
                    raise InvariantBroken(f"{what} before {each} of the key {key!r}")

    # Unacknowledged records

    def unacknowledged_of(self, position: Position) -> set[Record]:
        """Return the unacknowledged records of an entry."""
        acknowledged = self.cursor.acknowledged
        if not acknowledged.is_unacknowledged(position):
            return set()
        left = acknowledged.records_of(position)
        return {
            (position, at) for at in (range(len(self._keys_of(position))) if left is None else left)
        }

    def unacknowledged(self) -> set[Record]:
        """Return all unacknowledged records."""
        return {
            each
            for position in self._unacknowledged_positions()
            for each in self.unacknowledged_of(position)
        }

    def _unacknowledged_positions(self) -> list[Position]:
        return self.cursor.acknowledged.unacknowledged_of(self.handle.positions())

    def size_of(self, position: Position) -> int:
        """Return the number of records of an entry."""
        return len(self._keys_of(position))

    def _is_unacknowledged(self, record: Record) -> bool:
        return record in self.unacknowledged_of(record[0])

    def _key_of(self, record: Record) -> Key:
        position, at = record
        return self._keys_of(position)[at]

    def _keys_of(self, position: Position) -> Sequence[Key]:
        """Return the keys of an entry's records, if its write is known."""
        data = self.handle.log.data.get(position)
        write = None if data is None else self._model.write_of(data)
        return write.keys if write is not None else ()


def indexes(mask: int) -> list[int]:
    """Return which bits are set; all of them means of any batch here."""
    return [at for at in range(64) if mask >> at & 1]

"""Builders of entries and consumers, and a model that checks what dispatchers deliver.

The model keeps sets of single records. A test reports every event to it; the model fails on a
delivery that must not be, and knows at the end which records are missing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import Entry, Position
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import DELIVER_AT, mask_of, record_count
from kledger.subscriptions.model import ConsumerOptions, Delivery, RecordMask, SubscriptionType

KEYS = (b"a", b"b", b"c", b"d", b"e", b"f", b"g", None)

Record = tuple[Position, int]
SINGLE = {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER}


@lru_cache(maxsize=4096)
def data_of(keys: tuple[bytes | None, ...], due_ms: int | None = None, codec: int = 0) -> bytes:
    """Build a batch with a record for each key; with a time it is delayed."""
    headers = () if due_ms is None else ((DELIVER_AT, b"%d" % due_ms),)
    records = [NewRecord(b"value", key=key, headers=headers) for key in keys]
    return bytes(build_batch(records, codec=codec))


def entry(entry_id: int, *keys: bytes | None, due_ms: int | None = None) -> Entry:
    return Entry(Position(1, entry_id), data_of(keys or (None,), due_ms))


def at(entry_id: int) -> Position:
    return Position(1, entry_id)


def consumer(name: str = "c", **options: object) -> ConsumerOptions:
    return ConsumerOptions(name=name, **options)  # type: ignore[arg-type]


def indexes(mask: int) -> list[int]:
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


def records_of(delivery: Delivery) -> list[Record]:
    mask = delivery.records & ((1 << record_count(delivery.data)) - 1)
    return [(delivery.position, index) for index in indexes(mask)]


def masks_of(records: Sequence[Record]) -> list[RecordMask]:
    """Put records of one entry together."""
    by_position: dict[Position, list[int]] = {}
    for position, index in records:
        by_position.setdefault(position, []).append(index)
    return [RecordMask(position, mask_of(found)) for position, found in sorted(by_position.items())]


class Limit:
    """Blocked from the maximum on, until there are as few as `resume_at`."""

    def __init__(self, maximum: int, resume_at: int) -> None:
        self.maximum = maximum
        self.resume_at = resume_at
        self.is_blocked = False

    def look(self, count: int) -> None:
        if self.maximum and count >= self.maximum:
            self.is_blocked = True
        elif count <= self.resume_at:
            self.is_blocked = False


class ModelConsumer:
    """A consumer in the model."""

    def __init__(self, options: ConsumerOptions, *, is_limited: bool) -> None:
        self.options = options
        self.permits = 0
        self.held: set[Record] = set()
        maximum = options.unacked_max if is_limited else 0
        self.limit = Limit(maximum, maximum // 2)

    @property
    def has_room(self) -> bool:
        return self.permits > 0 and not self.limit.is_blocked


class DeliveryModel:
    """Plain sets that every delivery is checked against.

    Attributes:
        unacknowledged: every record that is not acknowledged.
        holder: which consumer has one of them.
        reached: the last record that exclusive or failover delivered since the last rewind.
    """

    def __init__(self, kind: SubscriptionType, options: DispatchOptions) -> None:
        self.kind = kind
        self.keys: dict[Record, bytes | None] = {}
        self.unacknowledged: set[Record] = set()
        self.due: dict[Record, int] = {}
        self.holder: dict[Record, int] = {}
        self.times: Counter[Record] = Counter()
        self.consumers: dict[int, ModelConsumer] = {}
        self.reached: Record | None = None
        maximum = options.unacked_subscription_max
        self.limit = Limit(maximum if kind not in SINGLE else 0, (maximum - 1) // 2)

    # What happens

    def appended(
        self, position: Position, keys: Sequence[bytes | None], due_ms: int | None = None
    ) -> None:
        for index, key in enumerate(keys):
            self.keys[position, index] = key
            self.unacknowledged.add((position, index))
            if due_ms is not None and self.kind not in SINGLE:
                self.due[position, index] = due_ms

    def joined(self, number: int, options: ConsumerOptions) -> None:
        if not self.consumers:
            self.rewound()
        self.consumers[number] = ModelConsumer(options, is_limited=self.kind not in SINGLE)

    def left(self, number: int) -> None:
        self.lost(number, self.consumers[number].held)
        del self.consumers[number]

    def lost(self, number: int, records: set[Record]) -> None:
        """Take records away from a consumer."""
        for record in list(records):
            self.consumers[number].held.discard(record)
            self.holder.pop(record, None)
        self.look()

    def rewound(self) -> None:
        """Everything unacknowledged is redelivered."""
        self.reached = None
        for number in self.consumers:
            self.lost(number, self.consumers[number].held)

    def acknowledged(self, records: set[Record]) -> None:
        self.unacknowledged -= records
        for record in records:
            number = self.holder.pop(record, None)
            if number is not None:
                self.consumers[number].held.discard(record)
        self.look()

    def was_reset(self, first: Position) -> None:
        """Everything from a position on is unacknowledged, with redelivery counts of 0."""
        self.rewound()
        self.times.clear()
        self.unacknowledged = {record for record in self.keys if record[0] >= first}

    def look(self) -> None:
        for model_consumer in self.consumers.values():
            model_consumer.limit.look(len(model_consumer.held))
        self.limit.look(len(self.holder))

    # Deliveries

    def check_delivered(
        self, out: Mapping[int, Sequence[Delivery]], now_ms: int, *, is_whole: bool = True
    ) -> None:
        """Check deliveries entry by entry: each consumer gets entries in order.

        Args:
            is_whole: whether these are all deliveries of the step.
        """
        positions = sorted({each.position for given in out.values() for each in given})
        for number, given in out.items():
            assert given, "nothing is delivered as a delivery"
            given_positions = [each.position for each in given]
            assert given_positions == sorted(given_positions)
            assert number in self.consumers, f"consumer {number} is unknown"
        for position in positions:
            assert not (is_whole and self.limit.is_blocked), "all together have too much"
            for number, given in out.items():
                parts = [each for each in given if each.position == position]
                if parts:
                    self.takes(number, parts, now_ms)
            self.look()
        if is_whole and self.kind is SubscriptionType.SHARED:
            self.check_priorities(out)

    def takes(self, number: int, parts: Sequence[Delivery], now_ms: int) -> None:
        model_consumer = self.consumers[number]
        assert model_consumer.has_room, f"{model_consumer.options.name} has no room"
        for delivery in parts:
            for record in records_of(delivery):
                assert record in self.unacknowledged, f"{record} is acknowledged"
                assert record not in self.holder, f"consumer {self.holder[record]} has {record}"
                assert self.due.get(record, 0) <= now_ms, f"{record} comes too early"
                assert delivery.redelivery_count == self.times[record], record
                self.check_order(number, record, now_ms)
                self.times[record] += 1
                self.holder[record] = number
                model_consumer.held.add(record)
                model_consumer.permits -= 1

    def check_order(self, number: int, record: Record, now_ms: int) -> None:
        if self.kind in SINGLE:
            following = [
                each for each in self.unacknowledged if self.reached is None or each > self.reached
            ]
            assert min(following) == record
            self.reached = record
        elif self.kind is SubscriptionType.KEY_SHARED and self.keys[record] is not None:
            for other in self.unacknowledged:
                if other < record and self.keys[other] == self.keys[record]:
                    may_wait = self.due.get(other, 0) > 0 and other not in self.holder
                    assert may_wait or self.holder.get(other) == number, f"{record} before {other}"

    def check_priorities(self, out: Mapping[int, Sequence[Delivery]]) -> None:
        lowest = max((self.consumers[each].options.priority_level for each in out), default=0)
        for model_consumer in self.consumers.values():
            is_better = model_consumer.options.priority_level < lowest
            assert not (is_better and model_consumer.has_room), (
                f"{model_consumer.options.name} comes first"
            )

    def missing(self, now_ms: int) -> set[Record]:
        """Records that are due and that no consumer has."""
        return {
            r for r in self.unacknowledged if r not in self.holder and self.due.get(r, 0) <= now_ms
        }

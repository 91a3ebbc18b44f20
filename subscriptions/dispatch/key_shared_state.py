"""Key shared state: all records of a key are delivered to one consumer, in order.

Rule: a record is delivered to the owner of its key hash if no other consumer has unacknowledged
records of that hash and no earlier record of it is queued. Otherwise it is queued, and reading
continues for other keys up to the look-ahead limits. The records of one entry may be split among
consumers.
Must not know: cursors, clocks. Source: PIP-379, draining hashes; Pulsar keeps the order of entries,
here it is that of records.
"""

from collections.abc import Iterator, Mapping

from kledger.ledger import Buffer, Entry, Position
from kledger.subscriptions.dispatch.consumer_state import ConsumerState
from kledger.subscriptions.dispatch.dispatch_state import DeliveriesByConsumer
from kledger.subscriptions.dispatch.multiple_consumers_state import MultipleConsumersState
from kledger.subscriptions.dispatch.replay_queue_state import KeyHashQueue, KeyHashQueues
from kledger.subscriptions.dispatch.sticky_key_selector_state import StickyKeySelector, selector_for
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import (
    RecordsByKeyHash,
    keyless_hash_of,
    records_by_key_hash,
)


class KeySharedState(MultipleConsumersState):
    """See `DispatchState`.

    `_key_hashes` are those of every entry that has pending or queued records. `_ready` are the key
    hashes, by owner, whose first queued records need nothing but room.
    """

    def __init__(self, options: DispatchOptions) -> None:
        super().__init__(options)
        self._owners: StickyKeySelector | None = None
        self._holders = KeyHashHolders()
        self._queue = KeyHashQueues()
        self._key_hashes: dict[Position, RecordsByKeyHash] = {}
        self.scanned_key_hashes: Mapping[Position, RecordsByKeyHash] = {}
        """The key hashes of large entries of the last read, scanned by the dispatcher."""
        self._ready: dict[int, dict[int, None]] = {}

    # Consumers

    def _check_admission(self, consumer: ConsumerState) -> None:
        owners = self._owners if self.consumers else None
        if owners is None:
            owners = selector_for(consumer.options)
        owners.add(consumer.number, consumer.options)
        self._owners = owners
        self._recheck_all()

    def _on_consumer_removed(self, consumer: ConsumerState) -> None:
        assert self._owners is not None
        self._owners.remove(consumer.number)
        self._recheck_all()

    def _recheck_all(self) -> None:
        """Update `_ready` after owners have changed."""
        self._ready = {}
        for key_hash in self._queue.queues:
            self._recheck(key_hash)

    def _recheck(self, key_hash: int) -> None:
        """Update `_ready` after the queue, the holder or the owner of a key hash has changed."""
        owner = self._owner_of(key_hash)
        if owner is None:
            return
        if key_hash in self._queue and self._holders.is_free_for(key_hash, owner):
            self._ready.setdefault(owner, {}).setdefault(key_hash)
        elif owner in self._ready:
            self._ready[owner].pop(key_hash, None)

    def _owner_of(self, key_hash: int) -> int | None:
        return self._owners.owner_of(key_hash) if self._owners is not None else None

    # The queue

    def _enqueue(self, position: Position, records: int) -> None:
        for key_hash, mask in self._key_hashes[position]:
            if mask & records:
                self._queue_records(key_hash, position, mask & records)

    def _enqueue_due(self, position: Position, key_hashes: RecordsByKeyHash) -> None:
        self._key_hashes[position] = key_hashes
        self._enqueue(position, 1)

    def _key_hashes_for_delay(self, position: Position, data: Buffer) -> RecordsByKeyHash:
        return self._key_hashes_in(position, data)

    def _key_hashes_in(self, position: Position, data: Buffer) -> RecordsByKeyHash:
        known = self.scanned_key_hashes.get(position)
        return records_by_key_hash(data, keyless_hash_of(position)) if known is None else known

    def _queue_records(self, key_hash: int, position: Position, records: int) -> None:
        self._queue.add(key_hash, position, records)
        self._recheck(key_hash)

    def _dequeue(self, position: Position, records: int) -> None:
        for key_hash, mask in self._key_hashes.get(position, ()):
            if key_hash in self._queue and mask & records:
                self._queue.remove(key_hash, position, mask & records)
                self._recheck(key_hash)
        self._forget_key_hashes(position)

    def _dequeue_before(self, position: Position) -> None:
        for each in [each for each in self._key_hashes if each < position]:
            self._dequeue(each, -1)

    def _dequeue_all(self) -> None:
        self._queue.clear()
        self._holders.clear()
        self._key_hashes.clear()
        self._ready.clear()

    def _released(self, position: Position, records: int) -> bool:
        has_eased = False
        for key_hash, mask in self._key_hashes[position]:
            if mask & records:
                is_free = self._holders.release(key_hash, (mask & records).bit_count())
                if is_free and key_hash in self._queue:
                    self._recheck(key_hash)
                    has_eased = True
        return has_eased

    def _forget_key_hashes(self, position: Position) -> None:
        """Forget the key hashes of an entry without pending and queued records."""
        if position in self._pending:
            return
        for key_hash, _ in self._key_hashes.get(position, ()):
            if self._queue.records_of(key_hash, position):
                return
        self._key_hashes.pop(position, None)

    # Reading

    def _must_wait(self) -> bool:
        limit = min(
            self.options.look_ahead_consumer_max * len(self.consumers), self.options.look_ahead_max
        )
        if self._queue.mask_count >= limit:
            return True
        return any(
            key_hashes and self.consumers[each].room > 0 for each, key_hashes in self._ready.items()
        )

    def positions_to_replay(self) -> list[Position]:
        """Return the first entries of the ready key hashes, up to the limits of their owners."""
        chosen: set[Position] = set()
        if self._ready and not self._is_blocked:
            left = self._unacked.left
            for number, key_hashes in self._ready.items():
                room = min(self.consumers[number].room, left)
                for position, count in self._first_positions_of(key_hashes):
                    if room <= 0 or len(chosen) >= self.options.read_entries_max:
                        break
                    chosen.add(position)
                    room -= count
        return sorted(chosen)

    def _first_positions_of(self, key_hashes: dict[int, None]) -> Iterator[tuple[Position, int]]:
        """Yield the queued entries of key hashes, and how many records each has queued."""
        for key_hash in key_hashes:
            queue: KeyHashQueue = self._queue.queues[key_hash]
            for position in queue.order:
                yield position, queue.records[position].bit_count()

    # Dispatching

    def _offer(self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int) -> None:
        position = entry.position
        key_hashes = self._key_hashes[position] = self._key_hashes_in(position, entry.buffer)
        given: dict[int, int] = {}
        for key_hash, mask in key_hashes:
            if mask & records:
                owner = self._receiver_of(key_hash, given) if key_hash not in self._queue else None
                if owner is None:
                    self._queue_records(key_hash, position, mask & records)
                else:
                    given[owner] = given.get(owner, 0) | mask & records
                    self._holders.take(key_hash, owner, (mask & records).bit_count())
        self._give_each(out, entry, full, given)

    def _offer_again(
        self, out: DeliveriesByConsumer, entry: Entry, full: int, records: int
    ) -> None:
        position = entry.position
        given: dict[int, int] = {}
        for key_hash, mask in self._key_hashes.get(position, ()):
            waiting = self._queue.records_of(key_hash, position)
            if not waiting:
                continue
            owner = (
                self._receiver_of(key_hash, given)
                if self._queue.is_first(key_hash, position)
                else None
            )
            if owner is None:
                self._queue.remove(key_hash, position, mask & ~records)
                self._recheck(key_hash)
                continue
            self._queue.remove(key_hash, position, waiting)
            if waiting & records:
                given[owner] = given.get(owner, 0) | waiting & records
                self._holders.take(key_hash, owner, (waiting & records).bit_count())
            self._recheck(key_hash)
        self._give_each(out, entry, full, given)
        self._forget_key_hashes(position)

    def _receiver_of(self, key_hash: int, given: dict[int, int]) -> int | None:
        """Return the owner of a key hash, if it may get records of this entry now.

        A consumer that gets some records of an entry may get all of them that are its own.
        """
        owner = self._owner_of(key_hash)
        if owner is None or not self._holders.is_free_for(key_hash, owner):
            return None
        if owner in given or (not self._is_blocked and self.consumers[owner].room > 0):
            return owner
        return None

    def _give_each(
        self, out: DeliveriesByConsumer, entry: Entry, full: int, given: dict[int, int]
    ) -> None:
        for number, records in given.items():
            self._give(out, self.consumers[number], entry, full=full, records=records)


class KeyHashHolders:
    """Which consumer has how many unacknowledged records of each key hash.

    All of them are with one consumer. A key hash whose holder is not its owner is *draining*: the
    owner gets no record of it until the holder has none left. That keeps the order of every key
    while consumers join and leave.

    Source: PIP-379, DrainingHashesTracker; there an entry is made when a hash moves, here counts
    are always kept, so that a move has nothing to look up.
    """

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def is_free_for(self, key_hash: int, consumer: int) -> bool:
        """Whether no other consumer has records of a key hash."""
        held = self._holders.get(key_hash)
        return held is None or held[0] == consumer

    def take(self, key_hash: int, consumer: int, count: int) -> None:
        """Count records that are delivered to a consumer."""
        held = self._holders.get(key_hash)
        if held is None:
            self._holders[key_hash] = [consumer, count]
            return
        assert held[0] == consumer, f"consumer {held[0]} has key hash {key_hash}, not {consumer}"
        held[1] += count

    def release(self, key_hash: int, count: int) -> bool:
        """Count records that are taken back; return whether these were the last ones."""
        held = self._holders[key_hash]
        held[1] -= count
        assert held[1] >= 0, f"key hash {key_hash} has {held[1]} records"
        if held[1]:
            return False
        del self._holders[key_hash]
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._holders.clear()

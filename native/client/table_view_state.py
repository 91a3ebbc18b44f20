"""Table view state: the last value of each key, and how far each partition was read.

Rule: records of a partition are applied in its order, and progress is the read position of the
partition, whatever was applied: records without a key, skipped updates and entries that nobody sees
count too. A refresh is registered before it is compared with the positions, so it misses none.
Must not know: readers, listeners, strategies.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from kledger.batches.reader import KeyValue
from kledger.ledger import EARLIEST, Position
from kledger.native.message import Message


@dataclass(slots=True, eq=False)
class Refresh:
    """One wait for the ends of all partitions.

    Attributes:
        unread: how many partitions are not read up to their ends yet.
    """

    unread: int

    @property
    def is_done(self) -> bool:
        """Whether all partitions were read up to their ends."""
        return not self.unread


class TableViewState:
    """The state of one view.

    Attributes:
        values: of all keys that are not removed.
        messages: the last message of every key, None for a removed one; None: not kept. Key and
            value of a message are the same objects as in `values`.
    """

    __slots__ = ("_numbers", "_positions", "_waiting", "messages", "values")

    def __init__(self, *, keeps_messages: bool) -> None:
        self.values: dict[bytes, bytes] = {}
        self.messages: dict[bytes, Message | None] | None = {} if keeps_messages else None
        self._positions: defaultdict[int, Position] = defaultdict(lambda: EARLIEST)
        # By partition: the ends that are waited for, the lowest first.
        self._waiting: defaultdict[int, list[tuple[Position, int, Refresh]]] = defaultdict(list)
        self._numbers = count()  # so that refreshes with one end have an order

    # Records

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply one record; a value that is empty or None removes the key."""
        if value:
            self.values[key] = value
        else:
            self.values.pop(key, None)

    def apply_all(self, records: Iterable[KeyValue]) -> None:
        """Apply some records; those without a key change nothing."""
        values = self.values
        for key, value in records:
            if key is None:
                continue
            if value:
                values[key] = value
            else:
                values.pop(key, None)

    def apply_message(self, key: bytes, message: Message) -> None:
        """Apply one record, and keep the message."""
        assert self.messages is not None, "this view keeps no messages"
        self.messages[key] = message if message.value else None
        self.apply(key, message.value)

    # Progress

    def read_upto(self, partition: int, position: Position) -> list[Refresh]:
        """Note that all entries before a position were applied; return the refreshes it ends.

        A lower position than before, as after a lost connection, changes nothing.
        """
        self._positions[partition] = max(position, self._positions[partition])
        return self._pass_ends(partition)

    def begin_refresh(self, ends: Sequence[Position]) -> Refresh:
        """Begin to wait until every partition was read up to its end.

        Args:
            ends: for each partition the position behind its last entry.
        """
        refresh = Refresh(len(ends))
        for partition, end in enumerate(ends):
            heappush(self._waiting[partition], (end, next(self._numbers), refresh))
        for partition in range(len(ends)):
            self._pass_ends(partition)
        return refresh

    def _pass_ends(self, partition: int) -> list[Refresh]:
        waiting, position = self._waiting[partition], self._positions[partition]
        done = []
        while waiting and waiting[0][0] <= position:
            _, _, refresh = heappop(waiting)
            refresh.unread -= 1
            if refresh.is_done:
                done.append(refresh)
        return done

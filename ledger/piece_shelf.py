"""Piece shelf: what was read of the storage and may be wanted again, by ledger and entry.

Rule: one limit in bytes for all ledgers, room that was reserved included. What everybody has taken
goes first, the longest untouched before the rest; a piece that somebody will come for goes only for
another such piece. Pieces do not overlap as long as who fills the shelf reads up to `next_first`.
Must not know: storage, who reads, when.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from sys import maxsize
from typing import TypeAlias

from kledger.ledger.engine.base import Buffer

Place: TypeAlias = tuple[int, int]

_first = attrgetter("first")


class Piece:
    """Entries of a ledger that follow one another: ids `first` to `end`, without that."""

    __slots__ = ("buffers", "end", "first", "ledger_id", "size")

    def __init__(self, ledger_id: int, first: int, buffers: Sequence[Buffer]) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.end = first + len(buffers)
        self.buffers = buffers
        self.size = sum(map(len, buffers))

    @property
    def place(self) -> Place:
        """Where it begins."""
        return self.ledger_id, self.first


class PieceShelf:
    """Pieces of all ledgers.

    `expected_bytes` counts the pieces that nobody took to their end and the room reserved for
    those on their way, `used_bytes` the others; together they stay within `limit`.
    """

    def __init__(self, limit: int) -> None:
        """Args: limit: bytes; 0 keeps nothing."""
        self.limit = limit
        self.expected_bytes = 0
        self.used_bytes = 0
        self._expected: OrderedDict[Place, Piece] = OrderedDict()
        self._used: OrderedDict[Place, Piece] = OrderedDict()
        self._ledgers: dict[int, list[Piece]] = {}

    def find(self, ledger_id: int, entry_id: int) -> Piece | None:
        """Return the piece with an entry."""
        pieces = self._ledgers.get(ledger_id)
        if pieces is None:
            return None
        at = bisect_right(pieces, entry_id, key=_first) - 1
        return pieces[at] if at >= 0 and entry_id < pieces[at].end else None

    def touch(self, piece: Piece, upto: int, *, is_kept: bool = True) -> None:
        """Note that somebody took entries before `upto`.

        With the last of them the piece is used, and goes at once if it is not to be kept.
        """
        place = piece.place
        if place in self._used:
            self._used.move_to_end(place)
        elif upto < piece.end:
            self._expected.move_to_end(place)
        elif not is_kept:
            self._remove(piece)
        else:
            self._used[place] = self._expected.pop(place)
            self.expected_bytes -= piece.size
            self.used_bytes += piece.size

    def next_first(self, ledger_id: int, entry_id: int) -> int:
        """Return where the nearest piece behind an entry begins; beyond all ids without one."""
        pieces = self._ledgers.get(ledger_id, ())
        at = bisect_right(pieces, entry_id, key=_first)
        return pieces[at].first if at < len(pieces) else maxsize

    def reserve(self, size: int) -> bool:
        """Make room for a piece that somebody will come for; False when it is too large."""
        if size > self.limit:
            return False
        self.expected_bytes += size
        while self.expected_bytes + self.used_bytes > self.limit:
            if not self._used and not self._expected:
                self.expected_bytes -= size
                return False
            self._remove(next(iter((self._used or self._expected).values())))
        return True

    def release(self, size: int) -> None:
        """Give reserved room back."""
        self.expected_bytes -= size

    def put(self, piece: Piece, *, is_used: bool) -> None:
        """Keep a piece, unless there is no room or something of it is there already.

        Only used ones go for it: room for others is made when it is reserved.
        """
        end = self.next_first(piece.ledger_id, piece.first)
        if self.find(piece.ledger_id, piece.first) or piece.end > end:
            return
        if piece.size > self.limit - self.expected_bytes:
            return
        while self.expected_bytes + self.used_bytes + piece.size > self.limit:
            self._remove(next(iter(self._used.values())))
        insort(self._ledgers.setdefault(piece.ledger_id, []), piece, key=_first)
        if is_used:
            self._used[piece.place] = piece
            self.used_bytes += piece.size
        else:
            self._expected[piece.place] = piece
            self.expected_bytes += piece.size

    def drop(self, ledger_id: int) -> None:
        """Forget everything of a ledger."""
        for piece in list(self._ledgers.get(ledger_id, ())):
            self._remove(piece)

    def _remove(self, piece: Piece) -> None:
        place = piece.place
        if self._used.pop(place, None) is not None:
            self.used_bytes -= piece.size
        else:
            del self._expected[place]
            self.expected_bytes -= piece.size
        pieces = self._ledgers[piece.ledger_id]
        del pieces[bisect_right(pieces, piece.first, key=_first) - 1]
        if not pieces:
            del self._ledgers[piece.ledger_id]

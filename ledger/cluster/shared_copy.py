"""Shared copy: what one process knows of the rows that all nodes of a cluster share.

Rule: it goes from one write to a later one, by the rows between them, or by all rows if it cannot
know what was between; `take` returns what has changed by that, `wrote` follows the process's own.
Must not know: databases, event loops.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kledger.ledger.cluster.shared_statements import NO_TOKEN
from kledger.ledger.engine.base import Row

UNKNOWN = -1
"""The number before everything was read."""


class FoundRows(NamedTuple):
    """An answer of the database.

    Attributes:
        number: of the newest row.
        token: of the write that ended with it.
        forgotten: deletions up to this number are gone.
        continues: whether the write is known from which the rows were asked for.
        is_all: whether these are all rows that have a value.
        rows: key, value and number, in the order of numbers.
    """

    number: int
    token: bytes
    forgotten: int
    continues: bool
    is_all: bool
    rows: Sequence[tuple[bytes, bytes | None, int]]


def found_rows(answer: Sequence[Any], *, is_all: bool) -> FoundRows:
    """Return what the statements `CHANGES` and `ALL` have answered."""
    first = answer[0]
    rows = [
        (each["key"], each["value"], each["row_number"])
        for each in answer
        if each["row_number"] is not None
    ]
    number, token, forgotten = first["number"], first["token"], first["forgotten"]
    return FoundRows(number, token, forgotten, first["continues"], is_all, rows)


class SharedCopy:
    """The rows of one process.

    Attributes:
        seen: the number of the newest row.
        token: of the write that ended with it.
        forgotten: as `FoundRows` has it.
    """

    def __init__(self) -> None:
        self.seen = UNKNOWN
        self.token = NO_TOKEN
        self.forgotten = 0
        self._rows: dict[bytes, bytes] = {}

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the rows whose key begins with `prefix`, in the order of keys."""
        return sorted(each for each in self._rows.items() if each[0].startswith(prefix))

    def take(self, found: FoundRows) -> Sequence[Row]:
        """Take over what was found; return what has changed by that, deletions of `is_all` first.

        Rows that are not newer than the copy are left out, as a read may be overtaken by a write.
        """
        self.forgotten = max(self.forgotten, found.forgotten)
        if found.is_all:
            return self._take_all(found)
        assert found.continues, "rows after an unknown write"
        if found.number <= self.seen:
            return ()
        changed = [(key, value) for key, value, number in found.rows if number > self.seen]
        self._set(changed)
        self.seen, self.token = found.number, found.token
        return changed

    def _take_all(self, found: FoundRows) -> Sequence[Row]:
        keys = {key for key, _, _ in found.rows}
        changed: list[Row] = [(key, None) for key in self._rows if key not in keys]
        changed += [(key, value) for key, value, _ in found.rows if self._rows.get(key) != value]
        self._set(changed)
        self.seen, self.token, self.forgotten = found.number, found.token, found.forgotten
        return changed

    def wrote(self, rows: Sequence[Row], number: int, token: bytes) -> None:
        """Take over a write of this process."""
        self._set(rows)
        self.seen, self.token = number, token

    def _set(self, rows: Sequence[Row]) -> None:
        for key, value in rows:
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value

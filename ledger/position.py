"""Position: the coordinate of an entry in a managed ledger.

Rule: positions are ordered by ledger, then by entry. The entry of a position may be trimmed
already, or not written yet.
Must not know: which ledgers exist. Theory: Pulsar's Position.
"""

from typing import NamedTuple

ID_MAX = (1 << 63) - 1
"""The largest ledger and entry id; it fits a signed 64-bit field of any wire format."""


class Position(NamedTuple):
    """Ledger id and entry id; entry id -1 is before the first entry of a ledger."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    @property
    def successor(self) -> "Position":
        """The next position in the same ledger, whether or not it has an entry."""
        return Position(self.ledger_id, self.entry_id + 1 if self.entry_id >= 0 else 0)

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Return the position whose `str` is `text`.

        Raises:
            ValueError: the text is not two whole numbers with a colon between them.
        """
        ledger_id, colon, entry_id = text.partition(":")
        if not colon:
            raise ValueError(f"a position is LEDGER:ENTRY, got {text!r}")
        return cls(int(ledger_id), int(entry_id))


EARLIEST = Position(-1, -1)
"""Before every entry that exists."""

LATEST = Position(ID_MAX, ID_MAX)
"""After every entry that exists."""

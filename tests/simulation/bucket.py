"""Bucket: what a simulated tier stores; it survives the end of a process, as an object store does.

Rule: a copy is whole or not. What a call was writing when it was cancelled, or when its process
ended, may arrive later, but not after `LATE_MS`.
Must not know: which process writes, and why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from uuid import UUID

CopyKey = tuple[int, UUID]
"""Ledger and attempt."""
LATE_MS = 800
"""Less than the time after which a broken attempt is deleted once more."""


@dataclass(slots=True)
class StoredCopy:
    """A copy of a ledger, or a part of one."""

    entries: list[bytes]
    is_whole: bool = False


class Bucket:
    """All copies, over all lives."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._copies: dict[CopyKey, StoredCopy] = {}
        self._writing: dict[CopyKey, list[bytes]] = {}
        self._late: list[tuple[int, CopyKey, list[bytes]]] = []

    def copies(self, now_ms: int) -> dict[CopyKey, StoredCopy]:
        """Return what is there now."""
        due = [each for each in self._late if each[0] <= now_ms]
        self._late = [each for each in self._late if each[0] > now_ms]
        for _, key, entries in due:
            self._copies[key] = StoredCopy(entries)
        return self._copies

    def begin(self, key: CopyKey) -> None:
        """Begin to write a copy."""
        self._writing[key] = []
        self._copies[key] = StoredCopy([])

    def write(self, key: CopyKey, entries: Sequence[bytes]) -> None:
        """Write the next entries."""
        self._writing[key] += entries
        self._copies[key] = StoredCopy(list(self._writing[key]))

    def end(self, key: CopyKey) -> None:
        """Complete a copy."""
        self._copies[key] = StoredCopy(self._writing.pop(key), is_whole=True)

    def break_off(self, key: CopyKey, now_ms: int) -> None:
        """End the writing of a copy in the middle; a part of it may arrive later."""
        entries = self._writing.pop(key, None)
        if entries is not None and self._random.random() < 0.5:
            self._late.append((now_ms + self._random.randrange(LATE_MS), key, entries))

    def end_process(self, now_ms: int) -> None:
        """End the writing of everything."""
        for key in list(self._writing):
            self.break_off(key, now_ms)

    def delete(self, key: CopyKey) -> None:
        """Delete a copy, if it is there."""
        self._copies.pop(key, None)

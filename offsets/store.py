"""Offset store: committed offsets as durable rows, and all of them in memory.

Rule: rows first, then `OffsetsState.apply`, then the caller's `done`; completions come in the order
of submission, so memory never differs from what a restart would read.
Must not know: who may commit, whether a topic exists.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from ledger import LedgerError, LedgerStore
from offsets.offsets_state import CommittedOffset, OffsetsState, Place
from offsets.records import (
    KEY_PREFIX,
    PENDING_PREFIX,
    decode_key,
    decode_pending_key,
    decode_value,
    encode_key,
    encode_pending_key,
    encode_value,
)

Done: TypeAlias = Callable[[LedgerError | None], None]
Row: TypeAlias = tuple[bytes, bytes | None]


class OffsetStore:
    """Writes offsets, answers reads from memory."""

    __slots__ = ("_commits_in_flight", "_store", "state")

    def __init__(self, store: LedgerStore, state: OffsetsState) -> None:
        self._store = store
        self._commits_in_flight: dict[str, deque[Sequence[tuple[Place, CommittedOffset]]]] = {}
        self.state = state

    @classmethod
    def open(cls, store: LedgerStore) -> "OffsetStore":
        """Read every stored offset through `apply`."""
        state = OffsetsState()
        for key, value in store.scan_rows(KEY_PREFIX):
            group, place = decode_key(key)
            state.apply(group, place, decode_value(value))
        for key, value in store.scan_rows(PENDING_PREFIX):
            producer_id, group, place = decode_pending_key(key)
            state.add_pending(producer_id, group, {place: decode_value(value)})
        return cls(store, state)

    def is_committing(self, group: str) -> bool:
        """Whether commits of the group are on their way and not visible yet."""
        return group in self._commits_in_flight

    def places(self, group: str) -> set[Place]:
        """Return every place of the group that has a row, or may have one in a moment.

        Among them those of open transactions: the end of one may be on its way.
        """
        return self._coming(group).keys() | self.state.pending_places(group)

    def places_of_topic(self, topic_id: UUID) -> dict[str, list[Place]]:
        """Return by group the places whose rows will name a topic when all commits have landed."""
        found = {}
        for group in {*self.state.groups(), *self._commits_in_flight}:
            coming = self._coming(group)
            places = [place for place, each in coming.items() if each.topic_id == topic_id]
            if places:
                found[group] = places
        return found

    def _coming(self, group: str) -> Mapping[Place, CommittedOffset]:
        """Return what the group will have committed when what is on its way has landed."""
        committed = self.state.all_committed(group)
        if group not in self._commits_in_flight:
            return committed
        coming = dict(committed)
        for offsets in self._commits_in_flight[group]:
            coming.update(offsets)
        return coming

    def commit_nowait(
        self, group: str, offsets: Sequence[tuple[Place, CommittedOffset]], done: Done
    ) -> None:
        """Store offsets of one group in one atomic write; `done` is called on the loop."""
        rows: list[Row] = [
            (encode_key(group, place), encode_value(committed)) for place, committed in offsets
        ]
        state = self.state
        in_flight = self._commits_in_flight

        def stored(error: LedgerError | None) -> None:
            commits = in_flight[group]
            commits.popleft()
            if not commits:
                del in_flight[group]
            if error is None:
                for place, committed in offsets:
                    state.apply(group, place, committed)
            done(error)

        in_flight.setdefault(group, deque()).append(offsets)
        self._append(rows, stored)

    def delete_nowait(
        self, group: str, places: Iterable[Place], done: Done, *, more_rows: Sequence[Row] = ()
    ) -> None:
        """Delete offsets of one group, atomically with `more_rows` of the caller."""
        gone = tuple(places)
        rows: list[Row] = [(encode_key(group, place), None) for place in gone]
        rows.extend(more_rows)
        state = self.state

        def deleted(error: LedgerError | None) -> None:
            if error is None:
                for place in gone:
                    state.apply(group, place, None)
            done(error)

        self._append(rows, deleted)

    # Transactions

    def add_pending_nowait(
        self, producer_id: int, group: str, offsets: Mapping[Place, CommittedOffset], done: Done
    ) -> None:
        """Store offsets that an open transaction would commit; nobody sees them before it does."""
        rows: list[Row] = [
            (encode_pending_key(producer_id, group, place), encode_value(committed))
            for place, committed in offsets.items()
        ]

        def stored(error: LedgerError | None) -> None:
            if error is None:
                self.state.add_pending(producer_id, group, offsets)
            done(error)

        self._append(rows, stored)

    def rows_of_end(self, producer_id: int, *, is_commit: bool) -> list[Row]:
        """Return the rows that end a producer's pending offsets.

        Whoever stores them calls `ended` when they are durable.
        """
        rows: list[Row] = []
        for group, offsets in self.state.pending(producer_id).items():
            for place, committed in offsets.items():
                rows.append((encode_pending_key(producer_id, group, place), None))
                if is_commit:
                    rows.append((encode_key(group, place), encode_value(committed)))
        return rows

    def ended(self, producer_id: int, *, is_commit: bool) -> list[str]:
        """Let the end of a producer's pending offsets hold; return the groups concerned."""
        pending = self.state.pending(producer_id)
        if is_commit:
            for group, offsets in pending.items():
                for place, committed in offsets.items():
                    self.state.apply(group, place, committed)
        self.state.end_pending(producer_id)
        return list(pending)

    def _append(self, rows: Sequence[Row], done: Done) -> None:
        """Hand rows to the store; one that has stopped fails them at once."""
        try:
            self._store.append_rows_nowait(rows, done)
        except LedgerError as error:
            done(error)

"""Cursor model: the acknowledgements of one cursor, and what a crash may take back.

Rule: every acknowledgement and every reset makes a new state, and the newest one is current. A
crash returns to some state, never to one before a state that was reported as durable.
Must not know: consumers, how a cursor becomes durable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kledger.ledger import EARLIEST, Cursor, Position
from tests.simulation.acknowledged_set import AcknowledgedSet
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel


@dataclass(slots=True, eq=False)
class Revision:
    """A revision, which is durable before it takes effect.

    Attributes:
        is_over: returns whether it has ended.
        next_read: where reading continues after it; None: at the old read position.
        happened: None while it is unknown.
    """

    serial: int
    is_over: Callable[[], bool]
    acknowledged: AcknowledgedSet
    next_read: Position | None
    happened: bool | None = None


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A revision to the state that the cursor already had: only its call reports the outcome.

    Attributes:
        next_read, unacknowledged_from: of the cursor, if the revision did not take place.
    """

    revision: Revision
    next_read: Position
    unacknowledged_from: Position


class CursorModel:
    """One cursor from its creation to its deletion.

    Attributes:
        exists: the possible values.
        is_vague: an operation on it runs whose caller was cancelled.
        cursor, handle: the open cursor and its managed ledger's handle; None if closed.
        next_read: entries before it were delivered, or need no delivery.
        unacknowledged_from: unacknowledged entries from there on must not be skipped; after
            `next_read` only while the outcome of a revision is unknown.
        was_sent_back: a forced seek made it read acknowledged entries.
        seen: the mark-delete position at the last check.
    """

    def __init__(self, name: str, *, is_vague: bool = False) -> None:
        self.name = name
        self.exists = {False, True} if is_vague else {False}
        self.is_vague = is_vague
        self.cursor: Cursor | None = None
        self.handle: HandleModel | None = None
        self.next_read = self.unacknowledged_from = EARLIEST
        self.was_sent_back = False
        self.seen: Position | None = None
        self._moments = [(0, AcknowledgedSet(EARLIEST))]
        self._serial = 0
        self._forgotten = range(0)
        self._returned = 0
        self._revision: Revision | None = None
        self._doubt: _Doubt | None = None
        self._looked: object = None

    def __str__(self) -> str:
        return f"{self.handle} cursor {self.name}"

    @property
    def acknowledged(self) -> AcknowledgedSet:
        """Its current state."""
        return self._moments[-1][1]

    @property
    def may_be_going(self) -> bool:
        """Whether it is closed, or may be in deletion."""
        is_closed = self.cursor is not None and self.cursor.is_closed
        return is_closed or self.is_vague or self.exists != {True}

    # Events

    def made(self, handle: HandleModel, cursor: Cursor, states: Sequence[AcknowledgedSet]) -> None:
        """Record its creation. `states`: its possible states so far, the last one is current."""
        self._attach(handle, cursor)
        self._moments = []
        for each in states:
            self._serial += 1
            self._moments.append((self._serial, each))

    def reopened(self, handle: HandleModel, cursor: Cursor) -> None:
        """Record that it was reopened by the same handle, unchanged."""
        self.cursor, self.handle = cursor, handle

    def found(self, handle: HandleModel, cursor: Cursor, ranges_max: int) -> None:
        """Record that a new handle recovered it: it has one of the possible states."""
        log, positions = handle.log, handle.positions()
        moments = [*self._moments]
        if self._revision is not None:
            moments.append((self._revision.serial, self._revision.acknowledged))
        self._attach(handle, cursor)
        acknowledged = AcknowledgedSet.read_off(cursor, positions)
        if self.is_vague:
            moments = [(self._serial, acknowledged)]
        for serial, each in reversed(moments):
            if each.difference(cursor, positions) is not None:
                if not acknowledged.lies_between(
                    each.lowest(ranges_max, log.order), each, positions
                ):
                    continue
                each = acknowledged  # noqa: PLW2901 - the highest ranges were left out
            self._moments = [(serial, each)]
            self._forgotten = range(serial + 1, self._serial + 1)
            self._returned = serial
            self.is_vague = False
            return
        why = self.acknowledged.difference(cursor, positions)
        raise InvariantBroken(
            f"{self} has state {acknowledged}, which it never had; "
            f"newest: {self.acknowledged}: {why}"
        )

    def adopted(self, handle: HandleModel, cursor: Cursor) -> None:
        """Adopt the cursor's own state, because it cannot be predicted."""
        self.is_vague = False
        if cursor is self.cursor:
            self.exists = {True}
            return
        self._attach(handle, cursor)
        self._serial += 1
        self._moments = [(self._serial, AcknowledgedSet.read_off(cursor, handle.positions()))]
        self._forgotten = range(0)
        self._returned = self._serial
        self.read_from(cursor.read_position)

    def read_from(self, position: Position) -> None:
        """Set where the next read begins."""
        self.next_read = self.unacknowledged_from = position
        self._doubt = None

    def move(self, acknowledged: AcknowledgedSet) -> int:
        """Record an acknowledgement; return its number."""
        if acknowledged != self.acknowledged:
            self._serial += 1
            self._moments.append((self._serial, acknowledged))
        return self._moments[-1][0]

    def kept(self, serial: int) -> None:
        """Record that a state was reported as durable."""
        if serial in self._forgotten:
            raise InvariantBroken(f"{self}: a state that was reported as durable was lost")
        while len(self._moments) > 1 and self._moments[1][0] <= serial:
            self._moments.pop(0)

    def returned(self, serial: int) -> None:
        """Record that a state was reported before it is durable, which it will be soon."""
        self._returned = max(self._returned, serial)

    def settled(self) -> None:
        """Record that reported states are durable: nothing fails, and time has passed."""
        if self.cursor is not None and not self.cursor.is_closed:
            self.kept(self._returned)

    def not_returned(self) -> None:
        """Record that it was closed with the error that not all of it is durable."""
        self._returned = 0

    # Revisions

    def begin_revision(
        self,
        acknowledged: AcknowledgedSet,
        next_read: Position | None,
        is_over: Callable[[], bool] | None = None,
    ) -> Revision:
        """Record the beginning of a revision. `is_over`: whether its number has changed."""
        assert self.cursor is not None
        self._serial += 1
        revisions, number = self.cursor.revision, self.cursor.revision.number
        revision = Revision(
            self._serial, is_over or (lambda: revisions.number != number), acknowledged, next_read
        )
        self._revision = revision
        return revision

    def end_revision(self, revision: Revision, *, happened: bool) -> None:
        """Record the reported outcome."""
        if revision is self._revision:
            self._revision = None
            self._decide(revision, happened=happened)
        elif revision.happened is not happened and revision.happened is not None:
            raise InvariantBroken(
                f"{self}: reported outcome {happened}, actual {revision.happened}"
            )
        elif self._doubt is not None and revision is self._doubt.revision:
            self._resolve(self._doubt, happened=happened)
        if happened:
            self.kept(revision.serial)

    def follow(self) -> None:
        """Check whether a revision has ended whose outcome is not reported yet."""
        cursor, revision = self.cursor, self._revision
        if cursor is None or revision is None or not revision.is_over():
            return
        assert self.handle is not None
        if not self.handle.is_usable:
            return  # its rows may have been written or not
        self._revision = None
        positions = self.handle.positions()
        is_there = revision.acknowledged.difference(cursor, positions) is None
        is_here = self.acknowledged.difference(cursor, positions) is None
        if is_there and is_here:
            self._leave_open(revision)
        else:
            self._decide(revision, happened=is_there)

    def _decide(self, revision: Revision, *, happened: bool) -> None:
        revision.happened = happened
        if happened:
            # One that acknowledges nothing more, such as a skip, leaves the read position alone.
            is_same = revision.next_read is None and revision.acknowledged == self.acknowledged
            self.was_sent_back, self.seen = self.was_sent_back and is_same, None
            self._moments.append((revision.serial, revision.acknowledged))
            if revision.next_read is not None:
                self.read_from(revision.next_read)

    def _leave_open(self, revision: Revision) -> None:
        """Record that its outcome is unknown: reading may continue at either position."""
        self._moments.append((revision.serial, revision.acknowledged))
        self.seen = None
        self._doubt = _Doubt(revision, self.next_read, self.unacknowledged_from)
        if revision.next_read is not None:
            self.next_read = min(self.next_read, revision.next_read)
            self.unacknowledged_from = max(self.unacknowledged_from, revision.next_read)

    def _resolve(self, doubt: _Doubt, *, happened: bool) -> None:
        """Record the outcome, if no read came in between."""
        self._doubt = None
        if not happened:
            self.next_read, self.unacknowledged_from = doubt.next_read, doubt.unacknowledged_from
        elif doubt.revision.next_read is not None:
            self.was_sent_back = False
            self.read_from(doubt.revision.next_read)

    # Checks

    def check(self, positions: Sequence[Position]) -> None:
        """Compare the model with the cursor. `positions`: of all entries in its managed ledger."""
        cursor, handle = self.cursor, self.handle
        if cursor is None or handle is None or not handle.is_usable:
            return
        if cursor.is_closed and self.is_vague:
            return  # a deleted cursor changes no more
        self.follow()
        now = (cursor.state.version, cursor.mark_delete_position, self._moments[-1][0], positions)
        if now == self._looked:
            return
        self._looked = now
        if difference := self.acknowledged.difference(cursor, positions):
            raise InvariantBroken(f"{self}: {difference}, expected {self.acknowledged}")
        mark_delete = cursor.mark_delete_position
        if self.seen is not None and mark_delete < self.seen:
            raise InvariantBroken(
                f"{self}: its mark-delete position moved from {self.seen} back to {mark_delete}"
            )
        self.seen = mark_delete
        unacknowledged = self.acknowledged.unacknowledged_of(positions)
        check(
            cursor.backlog == len(unacknowledged),
            f"{self}: backlog {cursor.backlog}, unacknowledged {len(unacknowledged)}",
        )
        if positions and mark_delete > handle.ml.last_confirmed_entry:
            check(not unacknowledged, f"{self}: {mark_delete} is after unacknowledged entries")
        elif unacknowledged and handle.ml.next_valid_position(mark_delete) != unacknowledged[0]:
            raise InvariantBroken(f"{self}: {mark_delete} does not lead to {unacknowledged[0]}")

    def _attach(self, handle: HandleModel, cursor: Cursor) -> None:
        self.cursor, self.handle = cursor, handle
        self.exists = {True}
        self.read_from(EARLIEST)
        self.was_sent_back, self.seen = False, None
        self._looked = None
        self._revision = None

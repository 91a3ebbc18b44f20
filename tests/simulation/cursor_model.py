"""Cursor model: the acknowledgements of one cursor, and what a crash may take back.

Rule: every acknowledgement and every reset is a moment. The newest is the state of the cursor now;
a crash goes back to some moment, and never before one that a caller knows to be durable.
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
    """A revision that is durable before it is true.

    Attributes:
        is_over: tells whether it has ended.
        next_read: where reading continues after it; None: where it was.
        happened: None while it is unknown.
    """

    serial: int
    is_over: Callable[[], bool]
    place: AcknowledgedSet
    next_read: Position | None
    happened: bool | None = None


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A revision that led to where the cursor stood: only its caller will say what it was.

    Attributes:
        next_read, unacknowledged_from: of the cursor, as they are if it did not happen.
    """

    revision: Revision
    next_read: Position
    unacknowledged_from: Position


class CursorModel:
    """One cursor from its making to its deletion.

    Attributes:
        exists: the values that may be true.
        is_vague: an operation on it is under way whose outcome its caller will not get.
        cursor, handle: the newest opening, and its owner; None without one.
        next_read: entries before it were delivered, or need not be.
        unacknowledged_from: unacknowledged entries from there on must not be skipped; beyond
            `next_read` only while it is unknown whether a revision has happened.
        was_sent_back: a caller reads acknowledged entries on purpose.
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
    def place(self) -> AcknowledgedSet:
        """Its state now."""
        return self._moments[-1][1]

    @property
    def may_be_going(self) -> bool:
        """Whether it is closed, or may be about to be deleted."""
        is_closed = self.cursor is not None and self.cursor.is_closed
        return is_closed or self.is_vague or self.exists != {True}

    # What happens to it

    def made(self, handle: HandleModel, cursor: Cursor, places: Sequence[AcknowledgedSet]) -> None:
        """It is new. `places`: its possible states so far, the last one is its state now."""
        self._attach(handle, cursor)
        self._moments = []
        for each in places:
            self._serial += 1
            self._moments.append((self._serial, each))

    def reopened(self, handle: HandleModel, cursor: Cursor) -> None:
        """It is open again with the same owner, and as it was."""
        self.cursor, self.handle = cursor, handle

    def found(self, handle: HandleModel, cursor: Cursor, ranges_max: int) -> None:
        """A new owner found it in the storage: as it was at some moment that may be."""
        log, positions = handle.log, handle.positions()
        moments = [*self._moments]
        if self._revision is not None:
            moments.append((self._revision.serial, self._revision.place))
        self._attach(handle, cursor)
        place = AcknowledgedSet.read_off(cursor, positions)
        if self.is_vague:
            moments = [(self._serial, place)]
        for serial, each in reversed(moments):
            if each.difference(cursor, positions) is not None:
                if not place.lies_between(each.lowest(ranges_max, log.order), each, positions):
                    continue
                each = place  # noqa: PLW2901 - the highest ranges were left out
            self._moments = [(serial, each)]
            self._forgotten = range(serial + 1, self._serial + 1)
            self._returned = serial
            self.is_vague = False
            return
        why = self.place.difference(cursor, positions)
        raise InvariantBroken(
            f"{self} stands at {place}, where it never stood; newest: {self.place}: {why}"
        )

    def adopted(self, handle: HandleModel, cursor: Cursor) -> None:
        """Its state cannot be predicted; from now on the model takes the cursor's own."""
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
        """The next read begins there."""
        self.next_read = self.unacknowledged_from = position
        self._doubt = None

    def move(self, place: AcknowledgedSet) -> int:
        """Note an acknowledgement; return its moment."""
        if place != self.place:
            self._serial += 1
            self._moments.append((self._serial, place))
        return self._moments[-1][0]

    def kept(self, serial: int) -> None:
        """A caller knows that a moment is durable."""
        if serial in self._forgotten:
            raise InvariantBroken(f"{self}: a caller was told that something is kept that was lost")
        while len(self._moments) > 1 and self._moments[1][0] <= serial:
            self._moments.pop(0)

    def returned(self, serial: int) -> None:
        """A caller went on with a moment that will be durable before long."""
        self._returned = max(self._returned, serial)

    def settled(self) -> None:
        """Nothing fails any more, and time has passed: what callers went on with is durable."""
        if self.cursor is not None and not self.cursor.is_closed:
            self.kept(self._returned)

    def not_returned(self) -> None:
        """It was closed, and its caller got the error that not all of it is durable."""
        self._returned = 0

    # Revisions

    def begin_revision(
        self,
        place: AcknowledgedSet,
        next_read: Position | None,
        is_over: Callable[[], bool] | None = None,
    ) -> Revision:
        """A caller sets it; only one at a time can. `is_over`: whether its number has changed."""
        assert self.cursor is not None
        self._serial += 1
        revisions, number = self.cursor.revision, self.cursor.revision.number
        revision = Revision(
            self._serial, is_over or (lambda: revisions.number != number), place, next_read
        )
        self._revision = revision
        return revision

    def end_revision(self, revision: Revision, *, happened: bool) -> None:
        """The caller gets its outcome."""
        if revision is self._revision:
            self._revision = None
            self._decide(revision, happened=happened)
        elif revision.happened is not happened and revision.happened is not None:
            raise InvariantBroken(
                f"{self}: its caller was told {happened}, but it was {revision.happened}"
            )
        elif self._doubt is not None and revision is self._doubt.revision:
            self._resolve(self._doubt, happened=happened)
        if happened:
            self.kept(revision.serial)

    def follow(self) -> None:
        """A revision may have ended whose caller has no outcome yet."""
        cursor, revision = self.cursor, self._revision
        if cursor is None or revision is None or not revision.is_over():
            return
        assert self.handle is not None
        if not self.handle.is_usable:
            return  # its rows may be there, or not
        self._revision = None
        positions = self.handle.positions()
        is_there = revision.place.difference(cursor, positions) is None
        is_here = self.place.difference(cursor, positions) is None
        if is_there and is_here:
            self._leave_open(revision)
        else:
            self._decide(revision, happened=is_there)

    def _decide(self, revision: Revision, *, happened: bool) -> None:
        revision.happened = happened
        if happened:
            self._moments.append((revision.serial, revision.place))
            self.was_sent_back, self.seen = False, None
            if revision.next_read is not None:
                self.read_from(revision.next_read)

    def _leave_open(self, revision: Revision) -> None:
        """It may have happened: reading may continue at both positions until the outcome."""
        self._moments.append((revision.serial, revision.place))
        self.seen = None
        self._doubt = _Doubt(revision, self.next_read, self.unacknowledged_from)
        if revision.next_read is not None:
            self.next_read = min(self.next_read, revision.next_read)
            self.unacknowledged_from = max(self.unacknowledged_from, revision.next_read)

    def _resolve(self, doubt: _Doubt, *, happened: bool) -> None:
        """Its caller has the outcome, and no read came in between."""
        self._doubt = None
        if not happened:
            self.next_read, self.unacknowledged_from = doubt.next_read, doubt.unacknowledged_from
        else:
            self.was_sent_back = False
            if doubt.revision.next_read is not None:
                self.read_from(doubt.revision.next_read)

    # Looking

    def check(self, positions: Sequence[Position]) -> None:
        """Compare it with the cursor. `positions`: of all entries in its managed ledger."""
        cursor, handle = self.cursor, self.handle
        if cursor is None or handle is None or not handle.is_usable:
            return
        if cursor.is_closed and self.is_vague:
            return  # if it was deleted, it follows nothing any more
        self.follow()
        now = (cursor.state.version, cursor.mark_delete_position, self._moments[-1][0], positions)
        if now == self._looked:
            return
        self._looked = now
        if difference := self.place.difference(cursor, positions):
            raise InvariantBroken(f"{self}: {difference}, expected {self.place}")
        place = cursor.mark_delete_position
        if self.seen is not None and place < self.seen:
            raise InvariantBroken(
                f"{self}: its mark-delete position went from {self.seen} to {place}"
            )
        self.seen = place
        unacknowledged = self.place.unacknowledged_of(positions)
        check(
            cursor.backlog == len(unacknowledged),
            f"{self}: backlog {cursor.backlog}, owed {len(unacknowledged)}",
        )
        if positions and place > handle.ml.last_confirmed_entry:
            check(not unacknowledged, f"{self}: {place} is behind what is owed")
        elif unacknowledged and handle.ml.next_valid_position(place) != unacknowledged[0]:
            raise InvariantBroken(
                f"{self}: stands at {place}, although {unacknowledged[0]} is the first that is owed"
            )

    def _attach(self, handle: HandleModel, cursor: Cursor) -> None:
        self.cursor, self.handle = cursor, handle
        self.exists = {True}
        self.read_from(EARLIEST)
        self.was_sent_back, self.seen = False, None
        self._looked = None
        self._revision = None

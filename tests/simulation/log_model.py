"""Log model: the expected content of one managed ledger, as plain lists.

Rule: the model knows only the results of calls. A write that was acknowledged must exist, a refused
one must never appear; either is possible for all others until it is observed.
Must not know: how the ledger works.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING
from uuid import UUID

from kledger.ledger import (
    EARLIEST,
    LATEST,
    LedgerInfo,
    LedgerState,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
)
from kledger.subscriptions.partition_subscriptions import PartitionSubscriptions
from tests.simulation.compaction_model import CompactionModel
from tests.simulation.entries import Key
from tests.simulation.invariants import InvariantBroken, check

if TYPE_CHECKING:
    from tests.simulation.cursor_model import CursorModel
    from tests.simulation.following import FollowerModel
    from tests.simulation.sharing_model import SharingModel

USABLE = {
    LedgerState.LEDGER_OPENED,
    LedgerState.CLOSING_LEDGER,
    LedgerState.CREATING_LEDGER,
    LedgerState.TERMINATED,
}


class WriteOutcome(Enum):
    """The known outcome of a write."""

    WAITING = "not reported yet"
    KEPT = "acknowledged, or seen in a store that must keep it"
    REFUSED = "failed, and nothing of it was stored"
    UNKNOWN = "unknown: the caller got no result"


@dataclass(slots=True, eq=False)
class Write:
    """One append, or one group of rows, in the order of submission."""

    serial: int
    log: "LogModel | None"
    handle: "HandleModel | None"
    now_ms: int
    data: bytes
    rows: Sequence[tuple[bytes, bytes | None]] = ()
    position: Position | None = None
    outcome: WriteOutcome = WriteOutcome.WAITING
    keys: Sequence[Key] = ()

    def __str__(self) -> str:
        return f"write {self.serial}"


@dataclass(frozen=True, slots=True)
class Removal:
    """A request to remove ledgers; `before` is None for all but the newest."""

    before: Position | None

    def covers(self, info: LedgerInfo) -> bool:
        return self.before is None or Position(info.ledger_id, info.entries - 1) < self.before


@dataclass(slots=True, eq=False)
class HandleModel:
    """One opening of a managed ledger.

    Attributes:
        is_stale: known to be fenced, or its store to have ended.
        is_losing: it is being closed, or opened again or deleted by a cancelled call.
        configs: every configuration that it had.
        adds: every add_entry that is not refused, in the order of the calls.
        non_durable: its non-durable cursors.
        partition: its subscriptions, if there are any.
        sharing: the open subscription.
        follower: the consumer that reads compacted.
    """

    number: int
    log: "LogModel"
    ml: ManagedLedger
    configs: list[ManagedLedgerConfig]
    lac: Position
    infos: tuple[LedgerInfo, ...]
    is_stale: bool = False
    is_losing: bool = False
    submitted: Position | None = None
    adds: list[Write] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    non_durable: list["CursorModel"] = field(default_factory=list)
    partition: PartitionSubscriptions | None = None
    sharing: "SharingModel | None" = None
    follower: "FollowerModel | None" = None
    _listed: tuple[tuple[LedgerInfo, ...], tuple[Position, ...]] = ((), ())

    def __str__(self) -> str:
        return f"{self.log.name}#{self.number}"

    @property
    def is_usable(self) -> bool:
        """Whether its cursors accept changes."""
        return not self.is_stale and self.ml.state in USABLE

    def positions(self) -> tuple[Position, ...]:
        """Return every entry that can be read, acknowledged or not."""
        infos = self.ml.ledgers
        if infos != self._listed[0]:
            positions = (
                Position(info.ledger_id, entry_id)
                for info in infos
                for entry_id in range(info.entries)
            )
            self._listed = infos, tuple(positions)
        return self._listed[1]


class LogModel:
    """One managed ledger from its creation to its deletion.

    Attributes:
        exists: the possible values.
        may_be_deleted: whether the existing one may be another one of that name.
        ended: the possible values of "is terminated".
        order, data: every entry that exists or existed.
        gone_upto: the newest removed ledger that had entries.
        properties: for every key the values that it may have.
        cursors: the durable ones.
        raised: everything before it was removed on request, acknowledged or not.
        compaction: its compacted ledger.
        copies: attempts of the complete copies that were seen, by ledger.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.exists = {False}
        self.handle: HandleModel | None = None
        self.order: list[Position] = []
        self.data: dict[Position, bytes] = {}
        self.gone_upto = -1
        self.properties: dict[str, set[str | None]] = {}
        self.may_be_deleted = False
        self.ended = {False}
        self.cursors: dict[str, CursorModel] = {}
        self.raised = EARLIEST
        self.compaction = CompactionModel()
        self.copies: dict[int, UUID] = {}

    def succeeded_by(self, ml: ManagedLedger) -> "LogModel":
        """Return the model of the opened one: this one, or a new one if this may be deleted.

        Without entries the two look the same; then everything possible for either is possible.
        """
        may_be_new = self.may_be_deleted and not ml.number_of_entries(EARLIEST, LATEST)
        self.may_be_deleted = False
        if not may_be_new:
            return self
        successor = LogModel(self.name)
        successor.handle = self.handle
        successor.exists = {True}
        successor.ended = self.ended | {False}
        successor.raised = self.raised
        successor.compaction = self.compaction.or_none()
        successor.properties = {key: {*values, None} for key, values in self.properties.items()}
        return successor

    def keep(self, position: Position, data: bytes) -> None:
        """Record that an entry exists."""
        known = self.data.get(position)
        if known is not None:
            check(known == data, f"{self.name} {position}: two entries have one position")
            return
        self.data[position] = data
        if self.order and position < self.order[-1]:
            insort(self.order, position)
        else:
            self.order.append(position)

    def present(self) -> list[Position]:
        """Return the entries that are known to exist and were not removed."""
        return self.order[bisect_right(self.order, Position(self.gone_upto, 1 << 62)) :]

    def between(self, start: Position, end: Position) -> list[Position]:
        """Return the entries from `start` to `end`, both included."""
        first = max(start, Position(self.gone_upto + 1, -1))
        return self.order[bisect_left(self.order, first) : bisect_right(self.order, end)]

    def see_copies(self, infos: Iterable[LedgerInfo]) -> None:
        """Check that the copies in the tier that were seen are still there; note new ones."""
        listed = {info.ledger_id: info for info in infos}
        for ledger_id, attempt in list(self.copies.items()):
            info = listed.get(ledger_id)
            if info is None:
                del self.copies[ledger_id]
            elif not info.offloaded or info.offload is None or info.offload.attempt != attempt:
                raise InvariantBroken(f"{self.name}: {ledger_id} has lost copy {attempt}: {info}")
        for ledger_id, info in listed.items():
            if info.offloaded and info.offload is not None:
                check(info.closed_ms, f"{self.name}: ledger {ledger_id} is open, and has a copy")
                self.copies[ledger_id] = info.offload.attempt
            else:
                check(not info.primary_deleted, f"{self.name}: ledger {ledger_id} has no copy")

    def note_gone(self, ledger_ids: Iterable[int]) -> None:
        """Record the removal of ledgers."""
        self.gone_upto = max((self.gone_upto, *ledger_ids))


def check_removal(
    handle: HandleModel, removed: Sequence[LedgerInfo], total: int, now_ms: int
) -> None:
    """Check a removal: oldest first, for a reason, never the newest; empty ones when they end.

    Args:
        handle: whose list became shorter.
        removed: the ledgers that are missing now.
        total: bytes of the whole list, removed ones included.
        now_ms: the decision may be older, but age and size only grow.
    """
    remaining = total
    for info in removed:
        if not info.entries:
            continue
        remaining -= info.size
        if info.closed_ms is None:
            raise InvariantBroken(
                f"{handle}: ledger {info.ledger_id} was removed while it was written to"
            )
        if any(removal.covers(info) for removal in handle.removals):
            continue
        age_ms = now_ms - info.closed_ms
        if not any(_may_go(config, age_ms, remaining) for config in handle.configs):
            raise InvariantBroken(
                f"{handle}: ledger {info.ledger_id} was removed without a reason, age {age_ms} ms"
            )


def _may_go(config: ManagedLedgerConfig, age_ms: int, remaining: int) -> bool:
    return (config.retention_ms >= 0 and age_ms > config.retention_ms) or (
        config.retention_bytes >= 0 and remaining >= config.retention_bytes
    )

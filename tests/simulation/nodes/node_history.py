"""Node history: what clients of a cluster of nodes know, and what must therefore hold.

Rule: an owner that opens a node has everything that was acknowledged before, with the same values,
and nothing comes back that was dropped. An entry has one value, at all owners. An owner
acknowledges only what its successors have. A newer owner has a higher epoch. A value whose
append was refused is in no entry.
Must not know: servers, storage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.simulation.invariants import check


class LedgerState(Enum):
    """What is known of a ledger.

    LIVE: no client has dropped it.
    DROPPING: a client has, and does not know the outcome.
    DROPPED: that was acknowledged.
    """

    LIVE = auto()
    DROPPING = auto()
    DROPPED = auto()


@dataclass(slots=True)
class LedgerHistory:
    """One ledger.

    Attributes:
        values: of entries that somebody has seen, or that were acknowledged.
        acknowledged: entries that were acknowledged.
        refused: values that are in no entry.
        offset: the newest committed offset that was acknowledged, 0: none.
        sent_offset: the newest one that was sent.
        requests: of clients, without an outcome.
        is_committing: one of them is to commit an offset.
    """

    state: LedgerState = LedgerState.LIVE
    values: dict[int, bytes] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    offset: int = 0
    sent_offset: int = 0
    requests: int = 0
    is_committing: bool = False


@dataclass(frozen=True, slots=True)
class NodeContent:
    """What an owner has after it has opened a node."""

    entries: Mapping[int, Sequence[bytes]]
    offsets: Mapping[int, int]


class NodeHistory:
    """One node."""

    def __init__(self, node: int) -> None:
        self.ledgers: dict[int, LedgerHistory] = {}
        self.opened = self.acknowledged_count = 0
        self._node = node
        self._epoch = 0
        self._content = NodeContent({}, {})

    def new_ledger(self) -> int:
        """Return the id of a ledger that nobody has used."""
        ledger = len(self.ledgers)
        self.ledgers[ledger] = LedgerHistory()
        return ledger

    def live(self) -> list[int]:
        """Return ledgers to append to."""
        return [each for each, known in self.ledgers.items() if known.state is LedgerState.LIVE]

    def open(self, epoch: int, content: NodeContent) -> None:
        """An owner has opened the node."""
        check(epoch > self._epoch, f"{self}: epoch {epoch} after {self._epoch}")
        self._epoch, self._content = epoch, content
        self.opened += 1
        for ledger, known in self.ledgers.items():
            entries = content.entries.get(ledger, ())
            if known.state is LedgerState.DROPPED:
                check(not entries, f"{self}: ledger {ledger} is back in epoch {epoch}")
            if known.state is not LedgerState.LIVE:
                continue
            for entry_id in known.acknowledged:
                self._check_opened(ledger, entry_id)
            for entry_id, value in enumerate(entries):
                self.see(ledger, entry_id, value)
            self._check_offset(ledger, content.offsets.get(ledger, 0))

    def see(self, ledger: int, entry_id: int, value: bytes) -> None:
        """A client, or an owner, has found an entry."""
        known = self.ledgers[ledger].values.setdefault(entry_id, value)
        what = f"{self}: entry {ledger}:{entry_id}"
        check(known == value, f"{what} is {value!r}, and was {known!r}")
        check(value not in self.ledgers[ledger].refused, f"{what} is {value!r}, which was refused")

    def refuse(self, ledger: int, value: bytes) -> None:
        """A client got the answer that nothing of a request is there, now and later."""
        known = self.ledgers[ledger]
        known.refused.add(value)
        check(value not in known.values.values(), f"{self}: {value!r} is there, but was refused")

    def acknowledge(self, epoch: int, ledger: int, entry_id: int, value: bytes) -> None:
        """A client got the answer that an entry is stored."""
        self.see(ledger, entry_id, value)
        self.ledgers[ledger].acknowledged.add(entry_id)
        self.acknowledged_count += 1
        if epoch < self._epoch and self.ledgers[ledger].state is LedgerState.LIVE:
            self._check_opened(ledger, entry_id)  # an answer that was under way for long

    def acknowledge_offset(self, epoch: int, ledger: int, offset: int) -> None:
        """A client got the answer that an offset is committed."""
        known = self.ledgers[ledger]
        known.offset = max(known.offset, offset)
        if epoch < self._epoch and known.state is LedgerState.LIVE:
            self._check_offset(ledger, self._content.offsets.get(ledger, 0))

    def newest(self, ledger: int, last_entry: int, offset: int) -> None:
        """An owner says what is newest, now."""
        known = self.ledgers[ledger]
        acknowledged = max(known.acknowledged, default=-1)
        what = f"{self}: the newest entry of ledger {ledger}"
        check(last_entry >= acknowledged, f"{what} is {last_entry}, acknowledged {acknowledged}")
        self._check_offset(ledger, offset)

    def _check_opened(self, ledger: int, entry_id: int) -> None:
        found = self._content.entries.get(ledger, ())
        what = f"{self}: the owner in epoch {self._epoch} lacks entry {ledger}:{entry_id}"
        check(entry_id < len(found), f"{what}, which was acknowledged")

    def _check_offset(self, ledger: int, offset: int) -> None:
        known = self.ledgers[ledger]
        check(
            known.offset <= offset <= known.sent_offset,
            f"{self}: the offset of ledger {ledger} is {offset}, acknowledged {known.offset}",
        )

    def __str__(self) -> str:
        return f"node {self._node}"

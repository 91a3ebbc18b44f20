"""Tier listing: what the tiers of a stopped store should have, and whether a copy is whole.

Rule: rows say what a tier should have: complete copies, and what has still to be deleted. Only
`check_copy` asks a tier.
Must not know: Kafka, how tiers are reached.
"""

from dataclasses import dataclass
from uuid import UUID

from kledger.ledger.errors import Corrupt, NonRecoverable
from kledger.ledger.inspection.folder_inspection import FolderInspection
from kledger.ledger.inspection.ledger_check import CheckEntry
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import (
    CopyDeletion,
    LedgerRecord,
    OffloadContext,
    decode_copy_deletion,
    decode_ledger,
    decode_managed_ledger,
)
from kledger.ledger.offload.offloader import LedgerOffloader
from kledger.ledger.position import Position

CHECK_BYTES = 4 << 20
"""Bytes read from a tier at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCopy:
    """A complete copy of a ledger.

    Attributes:
        managed_ledger: its name.
        record: of the ledger.
        copy: where the copy is, and whether it is the only one.
    """

    managed_ledger: str
    record: LedgerRecord
    copy: OffloadContext


@dataclass(frozen=True, slots=True, kw_only=True)
class TierListing:
    """What the tiers should have.

    Attributes:
        copies: by managed ledger, then by ledger.
        deletions: what the store deletes after its next start, or has not completed; it may be
            there or not.
    """

    copies: tuple[ListedCopy, ...]
    deletions: tuple[CopyDeletion, ...]

    @property
    def attempts(self) -> frozenset[UUID]:
        """Attempts whose objects may be in a tier; any other object belongs to no ledger."""
        needed = {each.copy.attempt for each in self.copies}
        return frozenset(needed | {each.attempt for each in self.deletions})


def list_tier(engine: FolderInspection) -> TierListing:
    """Return what the tiers should have; rows that cannot be read are damage, and left out."""
    copies: list[ListedCopy] = []
    for key, row in engine.scan(*keys.managed_ledger_range()):
        try:
            head = decode_managed_ledger(row)
        except Corrupt:
            continue
        name = keys.managed_ledger_name(key)
        for ledger_key, ledger_row in engine.scan(*keys.ledger_range(head.managed_ledger_id)):
            try:
                record = decode_ledger(keys.ledger_id_in(ledger_key), ledger_row)
            except Corrupt:
                continue
            if record.tiered is not None:
                copies.append(ListedCopy(managed_ledger=name, record=record, copy=record.tiered))
    deletions = []
    for key, row in engine.scan(*keys.copy_deletion_range()):
        try:
            deletions.append(decode_copy_deletion(keys.attempt_in(key), row))
        except Corrupt:
            continue
    return TierListing(copies=tuple(copies), deletions=tuple(deletions))


async def check_copy(
    listed: ListedCopy, offloader: LedgerOffloader, check_entry: CheckEntry | None = None
) -> str | None:
    """Return what is wrong with a copy, None if nothing.

    Args:
        listed: the copy.
        offloader: reaches it.
        check_entry: reads every entry and checks its content; None only opens the copy.

    Raises:
        TierUnavailable: the tier did not answer.
    """
    record, copy = listed.record, listed.copy
    try:
        ledger = await offloader.open(record.ledger_id, copy.attempt, copy.location)
        try:
            if ledger.entries != record.entries:
                return f"the copy has {ledger.entries} entries, its record has {record.entries}"
            if check_entry is None:
                return None
            next_entry, size = 0, 0
            while next_entry < record.entries:
                for data in await ledger.read(
                    next_entry, end=record.entries, bytes_max=CHECK_BYTES
                ):
                    position = Position(record.ledger_id, next_entry)
                    if wrong := check_entry(listed.managed_ledger, position, bytes(data)):
                        return f"entry {position}: {wrong}"
                    next_entry += 1
                    size += len(data)
        finally:
            await ledger.close()
    except (NonRecoverable, Corrupt) as error:
        return str(error)
    return None if size == record.size else f"the copy has {size} bytes, its record {record.size}"

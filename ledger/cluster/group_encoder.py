"""Group encoder: makes the bytes of a group and stores them, inline or as an object.

Rule: `InlineBudget` decides which. A number in the name of an object is never used twice in its
epoch, also after a failure, so a late PUT can only create an object that no group names.
Must not know: the index, rows.
"""

from collections.abc import Callable, Sequence
from itertools import count
from uuid import UUID

from kledger.ledger.cluster.database import WalGroup
from kledger.ledger.cluster.group_log import EncodedGroup
from kledger.ledger.cluster.object_format import NewBlock, ObjectName, encode_object
from kledger.ledger.cluster.object_writer import ObjectWriter
from kledger.ledger.cluster.wal_plan import InlineBudget, WalLimits
from kledger.ledger.engine.base import Buffer

INLINE_NUMBER = 0
"""The number of what is inline; objects begin at 1."""


class WalGroupEncoder:
    """The bytes of the groups of one owner; for two threads, the committer's and the upkeep's."""

    def __init__(
        self,
        writer: ObjectWriter,
        limits: WalLimits,
        *,
        incarnation: UUID,
        epoch: int,
        now_ms: Callable[[], int],
    ) -> None:
        """Args: incarnation: of the cluster; epoch: of the owner; now_ms: a monotonic clock."""
        self.incarnation = incarnation
        self.inline_groups = self.inline_bytes = 0
        self._writer = writer
        self._epoch = epoch
        self._now_ms = now_ms
        self._budget = InlineBudget(limits, now_ms())
        self._numbers = count(INLINE_NUMBER + 1)

    def delay_ms(self, size: int) -> int:
        """Return how long a group of so many bytes would wait for its PUT, if none is under way."""
        if self._budget.would_take(size, self._now_ms()):
            return 0
        return self._writer.delay_ms()

    def encode(
        self, blocks: Sequence[NewBlock], drops: Sequence[int], *, inline_bytes: int
    ) -> EncodedGroup:
        """Make and store a group of the committer.

        Args:
            blocks: its entries.
            drops: ledgers that it drops.
            inline_bytes: what is inline now.

        Raises:
            StorageWriteFailed: it is not stored.
        """
        data_bytes = sum(len(data) for block in blocks for data in block.entries)
        if not self._budget.take(data_bytes, inline_bytes, self._now_ms()):
            return self.as_object(blocks, drops, is_paced=True)
        name = ObjectName(self.incarnation, self._epoch, INLINE_NUMBER)
        data, footer_at, footer = encode_object(name, blocks, drops)
        self.inline_groups += 1
        self.inline_bytes += len(data)
        wal = WalGroup(None, len(data), footer_at, bytes(data))
        return EncodedGroup(wal=wal, footer=footer, data=data)

    def as_object(
        self, blocks: Sequence[NewBlock], drops: Sequence[int], *, is_paced: bool
    ) -> EncodedGroup:
        """Make and store a group as an object; see `ObjectWriter.put` for the rest."""
        name = ObjectName(self.incarnation, self._epoch, next(self._numbers))
        data, footer_at, footer = encode_object(name, blocks, drops)
        key = self._writer.put(name, data, is_paced=is_paced)
        return EncodedGroup(wal=WalGroup(key, len(data), footer_at), footer=footer, data=data)

    def name_of(self, data: Buffer, key: str) -> ObjectName:
        """Return what an object of this cluster was written for.

        Raises:
            ObjectDamaged: its header cannot be read.
        """
        return ObjectName.of_header(data, key)._replace(incarnation=self.incarnation)

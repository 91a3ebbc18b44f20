"""Upkeep: background work of the owner of a cluster: liveness, the stored index, deletions.

Rule: a step is one round of everything that is due; it may end at any point, and the next one, of
this process or of the next owner, continues. The row of a group is deleted first, then its object;
after a crash in between, a later sweep deletes the object, as no group names it. Entries are copied
before the index names the copy, and the index changes only where it still names the source.
Must not know: the committer, threads: `ClusterEngine` runs the steps.

| every               | what                                                                       |
|---------------------|----------------------------------------------------------------------------|
| second              | an empty commit if nothing was committed: other brokers see that it lives  |
| 30 s, 2,000 groups  | the index is stored, so that a takeover reads few footers                  |
| storing of the index| groups without a live block are forgotten, then their objects are deleted  |
| second              | one object is written from groups that `wal_gc_plan` names                 |
| 15 min, then daily  | objects of earlier epochs that no group names are deleted                  |
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice

from kledger.ledger.cluster.database import GroupId
from kledger.ledger.cluster.group_encoder import WalGroupEncoder
from kledger.ledger.cluster.group_log import GroupLog
from kledger.ledger.cluster.object_format import (
    BLOCK_BYTES,
    CopiedBlock,
    NewBlock,
    ObjectDamaged,
    WalBlock,
    decode_block,
    decode_footer,
    incarnation_prefix,
)
from kledger.ledger.cluster.object_writer import LATE_PUT_MS, ObjectWriter
from kledger.ledger.cluster.session_state import COMMIT_EVERY_MS
from kledger.ledger.cluster.wal_gc_plan import (
    GarbageLimits,
    plan_forgetting,
    plan_rewriting,
    plan_sweep,
)
from kledger.ledger.cluster.wal_index import WalIndex, floor_row, group_of
from kledger.ledger.cluster.wal_objects import ObjectStoreFailed, WalObjects
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import StorageWriteFailed

logger = logging.getLogger(__name__)

STORE_INDEX_MS = 30_000
STORE_INDEX_GROUPS = 2_000
SWEEP_MS = 24 * 3600_000
FORGOTTEN_PER_COMMIT = 1_000
DELETIONS_PER_STEP = 100
DELETIONS_WAITING_MAX = 100_000
"""Objects that wait to be deleted while the store refuses that; a key takes about 150 bytes. More
are left to the next owner, which finds them as objects that no group names."""


class Upkeep:
    """The work of one owner; one thread at a time calls `step`, another one `heartbeat`."""

    def __init__(
        self,
        log: GroupLog,
        objects: WalObjects,
        writer: ObjectWriter,
        encoder: WalGroupEncoder,
        limits: GarbageLimits,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Begin with the first heartbeat; the index is stored in the first step.

        Args:
            log: of the owner.
            objects: where groups are.
            writer: stores the objects of copies.
            encoder: makes them.
            limits: when copies are made.
            now_ms: a monotonic clock.
        """
        self.rewritten_bytes = self.forgotten_groups = self.deleted_objects = 0
        self._log = log
        self._objects = objects
        self._writer = writer
        self._encoder = encoder
        self._limits = limits
        self._now_ms = now_ms
        self._index_at_ms = now_ms()
        self._sweep_at_ms = now_ms() + LATE_PUT_MS
        self._has_stored = False
        self._unused: list[int] = []  # files that neither the index nor its stored rows name
        self._to_delete: dict[str, None] = {}  # in their order
        self._has_dropped = False
        self._unreadable: set[int] = set()

    @property
    def garbage_objects(self) -> int:
        """Objects that wait to be deleted; attempts that may be under way are not among them."""
        return len(self._to_delete)

    def step(self) -> None:
        """Do what is due.

        Raises:
            SyncFailed: the log has ended.
        """
        self._log.refuse_after_failure()
        now_ms = self._now_ms()
        if self._log.ask(self._is_index_due):
            self.store_index()
        self._forget()
        try:
            self._rewrite()
        except (ObjectStoreFailed, StorageWriteFailed) as error:
            logger.warning("groups are not written again for now: %s", error)
        try:
            self._delete()
            if now_ms >= self._sweep_at_ms:
                self._sweep()
                self._sweep_at_ms = now_ms + SWEEP_MS
        except ObjectStoreFailed as error:
            logger.warning("objects are not deleted for now: %s", error)

    def heartbeat(self) -> None:
        """Commit nothing if nothing was committed for a second; for a thread of its own.

        Raises:
            SyncFailed: the log has ended.
        """
        self._log.refuse_after_failure()
        if self._now_ms() - self._log.stream.answered_at_ms >= COMMIT_EVERY_MS:
            self._log.commit_own()

    # The stored index

    def _is_index_due(self, index: WalIndex) -> bool:
        if not self._has_stored:
            return True
        if not index.is_dirty:
            return False
        if self._now_ms() - self._index_at_ms >= STORE_INDEX_MS:
            return True
        is_same_epoch = index.newest.epoch == index.stored_upto.epoch
        return not is_same_epoch or index.newest.seq - index.stored_upto.seq >= STORE_INDEX_GROUPS

    def store_index(self) -> None:
        """Store what has changed in the index. Raises SyncFailed."""

        def begin(index: WalIndex) -> tuple[GroupId, list[int]]:
            return index.newest, plan_forgetting(index.files, index.newest)

        # Rows that are stored after this name none of the groups without live blocks.
        upto, unused = self._log.ask(begin)
        while rows := self._log.ask(WalIndex.take_rows):
            self._log.commit_own(rows=rows)
        self._log.commit_own(rows=[floor_row(upto)])

        def stored(index: WalIndex) -> None:
            index.stored_upto = upto

        self._log.ask(stored)
        self._index_at_ms = self._now_ms()
        self._has_stored, self._unused = True, unused

    # Groups that nothing is read from

    def _forget(self) -> None:
        while self._unused:
            some = self._unused[:FORGOTTEN_PER_COMMIT]
            groups = [self._log.group_at(file) for file in some]
            self._log.commit_own(forgotten=[*map(group_of, some)])
            self._log.ask(partial(WalIndex.forget, files=some))
            for file in some:
                self._log.cache.forget(file)
            self._delete_later([each.object_key for each in groups if each and each.object_key])
            self.forgotten_groups += len(some)
            del self._unused[: len(some)]

    def _delete(self) -> None:
        self._delete_later(self._writer.take_abandoned(self._now_ms()))
        for key in [*islice(self._to_delete, DELETIONS_PER_STEP)]:
            self._objects.delete(key)
            self._writer.deleted(key)
            del self._to_delete[key]
            self.deleted_objects += 1
            self._has_dropped = False

    def _delete_later(self, keys: Sequence[str]) -> None:
        room = DELETIONS_WAITING_MAX - len(self._to_delete)
        self._to_delete.update(dict.fromkeys(keys[:room] if room > 0 else ()))
        if len(keys) > room and not self._has_dropped:
            self._has_dropped = True
            logger.warning(
                "%d objects wait to be deleted; more are left to the next owner",
                len(self._to_delete),
            )

    def _sweep(self) -> None:
        def referenced(index: WalIndex) -> set[str]:
            keys = (use.group.object_key for use in index.files.values())
            return {key for key in keys if key is not None}

        # Listed first: an object that is named after it, by this owner, is of this epoch.
        listed = self._objects.list(incarnation_prefix(self._encoder.incarnation))
        known = self._log.ask(referenced)
        swept = plan_sweep(
            listed, own_epoch=self._log.stream.epoch, is_referenced=known.__contains__
        )
        self._delete_later(swept)
        if swept:
            logger.info("%d objects of earlier owners were never committed", len(swept))

    # Copies

    def _rewrite(self) -> None:
        now_ms = self._now_ms()

        def plan(index: WalIndex) -> list[int]:
            return plan_rewriting(
                {file: use for file, use in index.files.items() if file not in self._unreadable},
                inline_bytes=index.inline_bytes,
                block_count=index.block_count,
                now_ms=now_ms,
                limits=self._limits,
            )

        files = self._log.ask(plan)
        if not files:
            return
        blocks = merged([*chain.from_iterable(map(self._live_blocks, files))])
        if not blocks:
            return
        encoded = self._encoder.as_object(blocks, (), is_paced=False)
        self._log.commit_own(encoded)
        self.rewritten_bytes += encoded.wal.size

    def _live_blocks(self, file: int) -> Sequence[NewBlock]:
        """Read what is still read of a group; a damaged group is left alone, to be examined."""
        group = self._log.group_at(file)
        if group is None:
            return ()
        key = group.object_key or "an inline group"
        data = self._data_of(file)
        try:
            name = self._encoder.name_of(data, key)
            footer = decode_footer(data[group.footer_at :], key, name, group.footer_at)
            live: list[WalBlock] = self._log.ask(lambda index: index.live_of(file, footer))
            return [self._copy(file, block, data, key) for block in live]
        except ObjectDamaged as error:
            logger.warning("a group keeps its dead space: %s", error)
            self._unreadable.add(file)
            return ()

    def _data_of(self, file: int) -> memoryview:
        """Return all bytes of a group. Raises ObjectStoreFailed."""
        group = self._log.group_at(file)
        assert group is not None, "only this thread forgets groups"
        known = group.inline if group.inline is not None else self._log.cache.group(file)
        if known is None:
            assert group.object_key is not None, "a group is inline or an object"
            known = self._objects.begin_get(group.object_key, group.at, group.size).result()
        return memoryview(known)

    @staticmethod
    def _copy(file: int, block: WalBlock, data: memoryview, key: str) -> NewBlock:
        entries = decode_block(data[block.position : block.position + block.size], key, block)
        source = CopiedBlock(file, block.position)
        return NewBlock(block.ledger_id, block.first, entries, [source])


def merged(blocks: Sequence[NewBlock], *, bytes_max: int = BLOCK_BYTES) -> list[NewBlock]:
    """Return blocks in the order of ledgers and entries, neighbours as one up to a size."""
    found: list[NewBlock] = []
    size = 0
    for block in sorted(blocks, key=lambda each: each[:2]):
        added = sum(map(len, block.entries))
        last = found[-1] if found else None
        if (
            last is not None
            and last.ledger_id == block.ledger_id
            and last.first + len(last.entries) == block.first
            and size + added <= bytes_max
        ):
            entries: list[Buffer] = [*last.entries, *block.entries]
            found[-1] = NewBlock(
                block.ledger_id, last.first, entries, [*last.sources, *block.sources]
            )
            size += added
        else:
            found.append(block)
            size = added
    return found

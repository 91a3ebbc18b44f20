"""Compactions: begins, completes and aborts the compactions of one managed ledger.

Rule: one runs at a time. From its beginning the metadata name the ledger that it writes, so
whatever ends it, that ledger is dropped: at once, by the next compaction, or by the next opening.
Must not know: appends, readers, what a compaction keeps.
"""

from collections.abc import Callable, Iterable
from functools import partial

from kledger.ledger.commits.committer import RowsDone, submitted
from kledger.ledger.cursors.cursor_registry import CursorRegistry
from kledger.ledger.engine.base import Row
from kledger.ledger.errors import CompactionRunning
from kledger.ledger.handle.compaction_writer import COMPACTION_CURSOR, CompactionWriter
from kledger.ledger.handle.ledger_changes import MetadataChanges
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.ledger_list_state import begun_compaction, completed_compaction
from kledger.ledger.metadata.records import CompactedLedger
from kledger.ledger.position import EARLIEST
from kledger.ledger.store_services import StoreServices


class Compactions:
    """At most one compaction at a time.

    Its managed ledger refers to it, and it refers to its managed ledger only while one runs.
    """

    def __init__(
        self,
        services: StoreServices,
        cursors: CursorRegistry,
        *,
        shown_as: str,
        check: Callable[[], None],
    ) -> None:
        """Make one.

        Args:
            services: of the store.
            cursors: of the managed ledger.
            shown_as: its name in errors.
            check: raises when the handle must not change anything any more.
        """
        self._services = services
        self._cursors = cursors
        self._shown_as = shown_as
        self._check = check
        self._writer: CompactionWriter | None = None

    @property
    def is_running(self) -> bool:
        """Whether a compaction runs."""
        return self._writer is not None

    async def begin(self, metadata: MetadataChanges) -> CompactionWriter:
        """Return the writer of another compacted ledger. Raises as `begin_compaction`."""
        self._check()
        if self._writer is not None:
            raise CompactionRunning(f"a compaction of {self._shown_as} runs already")
        self._writer = writer = CompactionWriter(
            self._services.ids.take(),
            self._services,
            check=self._check,
            complete=partial(self._complete, metadata),
            abort=partial(self._abort, metadata),
        )
        try:
            await self._abort(metadata, writer)
            await self._cursors.open(COMPACTION_CURSOR, EARLIEST)
        except BaseException:
            self._writer = None
            raise
        return writer

    async def _complete(
        self, metadata: MetadataChanges, compacted: CompactedLedger, rows: Iterable[Row]
    ) -> None:
        """Make a compacted ledger visible, in one group with the cursor of compactions."""
        cursor = await self._cursors.open(COMPACTION_CURSOR, EARLIEST)

        def submit(row: Row, done: RowsDone) -> None:
            self._check()
            change = completed_compaction(metadata.head(), compacted)
            user_rows = ((keys.user_key(key), value) for key, value in rows)
            metadata.submit(change, done, [row, *user_rows])

        first = compacted.horizon.successor
        await cursor.revise(lambda state: state.reset_to(first), submit=submit)
        self._writer = None

    async def _abort(
        self, metadata: MetadataChanges, begun: CompactionWriter | None = None
    ) -> None:
        """Drop what a compaction has written, and name the ledger of one that begins."""
        self._writer = begun
        self._check()
        change = begun_compaction(metadata.head(), None if begun is None else begun.ledger_id)
        await submitted(lambda done: metadata.submit(change, done))

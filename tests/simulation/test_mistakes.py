"""The simulation finds bugs: known mistakes are planted into the ledger, and every one is caught.

Each is a plausible wrong variant of one method. `seeds` is the number of seeds, from 0 on, within
which it must be caught; without a mistake all seeds pass (test_simulation).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kledger.ledger import (
    COMPACTION_CURSOR,
    EARLIEST,
    CompactedLedger,
    CompactionWriter,
    Cursor,
    CursorState,
    CursorStateRevisionController,
    LedgerInfo,
    LedgerState,
    ManagedLedger,
    Position,
    entry_sources,
    recovery,
)
from kledger.ledger.commits.committer import (
    Committer,
    Operation,
    RowsSubmitter,
    Submitter,
    submitted,
)
from kledger.ledger.cursors.compacted_positions import CompactedPositions
from kledger.ledger.cursors.cursor_reads import CursorReads
from kledger.ledger.cursors.cursor_rows_state import CursorRowsState
from kledger.ledger.cursors.cursor_state import CursorChanges
from kledger.ledger.cursors.cursor_writer import CursorWriter, SubmitRow
from kledger.ledger.engine.base import Row, StorageEngine
from kledger.ledger.engine.errors import StorageWriteFailed, SyncFailed
from kledger.ledger.handle import offloads
from kledger.ledger.handle.compactions import Compactions
from kledger.ledger.handle.ledger_changes import MetadataChanges
from kledger.ledger.handle.offloads import Offloads
from kledger.ledger.metadata import keys, retention_plan
from kledger.ledger.metadata.ledger_list_state import LedgerListState, MetadataChange
from kledger.ledger.metadata.records import (
    CopyDeletion,
    LedgerRecord,
    ManagedLedgerRecord,
    OffloadContext,
)
from kledger.ledger.offload import offload_plan
from kledger.ledger.offload.copy_deletions import CopyDeletions
from kledger.ledger.offload.offload_policies import ReadPriority
from kledger.ledger.offload.read_source_plan import ReadSource
from kledger.ledger.reads.entry_cache import EntryCache
from kledger.runtime.listeners import Listeners
from kledger.runtime.timers import TimerHandle
from kledger.subscriptions.dispatch.consumer_state import ConsumerState
from kledger.subscriptions.dispatch.dispatcher import Dispatcher
from kledger.subscriptions.dispatch.multiple_consumers_state import MultipleConsumersState
from kledger.subscriptions.dispatch.replay_queue_state import KeyHashQueues
from kledger.subscriptions.model import RecordMask
from kledger.subscriptions.subscription import Subscription
from tests.simulation.faults import InjectedFault
from tests.simulation.planted import PlantedMistake, expect_caught, mistake_name
from tests.simulation.run import Run

pytestmark = pytest.mark.slow


def confirms_before_the_sync(committer: Committer) -> None:
    """A group is confirmed when it is submitted to the thread, not when it is written."""
    right_start(committer)
    if batch := committer._batch_in_flight:
        operations, batch.operations = batch.operations, []
        committer._confirm(operations)


def confirms_before_the_reader_may_see(ml: ManagedLedger, operation: Operation) -> None:
    """The callback comes before the last confirmed entry moves."""
    _, position, size, data, done = operation
    done(position, None)
    ml._list.advance(position, size)
    ml._cached_ledger.append(data)


def keeps_ids_after_a_failure(ml: ManagedLedger) -> None:
    """After a failed write the next append gets the next id, as if the lost entries existed."""
    ml._head = ml._list.head
    if ml._handle_state.is_writable:
        ml._set_state(LedgerState.WRITE_FAILED)
    if ml._handle_state.state is not LedgerState.FENCED:
        ml._services.versions.reset(ml.name, ml._head.version)


def removes_data_first(
    committer: Committer, submitter: Submitter, rows: Iterable[Row], drops: Iterable[int] = ()
) -> None:
    """The data of a ledger is dropped in a group of its own, before the list is written."""
    if dropped := list(drops):
        right_submit_for(committer, RowsSubmitter(lambda error: None), (), dropped)
        if committer._batch_in_flight is None:
            committer._start()
    right_submit_for(committer, submitter, rows)


def keeps_the_cache(cache: EntryCache, ledger_id: int) -> None:
    """Trimmed entries stay in the cache."""


def lets_a_stale_owner_go_on(ml: ManagedLedger) -> None:
    """A second opening does not fence the first."""


def believes_the_mark(engine: StorageEngine, mark: LedgerRecord, now_ms: int) -> LedgerRecord:
    """Recovery takes the end of the open ledger from its record, not from its data."""
    return mark


def tries_a_sync_again(committer: Committer, batch: Any, error: Exception | None) -> None:
    """A failed sync is treated like a failed write, and the store continues."""
    if isinstance(error, SyncFailed):
        error = StorageWriteFailed(str(error))
    right_commit_finished(committer, batch, error)


async def returns_before_it_is_durable(writer: CursorWriter) -> None:
    """An acknowledgement returns before the row of the cursor is written."""
    if writer._is_dirty:
        writer._write_this_tick()


def trims_past_the_slowest(
    ledgers: Sequence[LedgerInfo], slowest: Position | None
) -> Sequence[LedgerInfo]:
    """Retention ignores the cursors."""
    return ledgers[:-1]


def delivers_what_was_read_before(
    revisions: CursorStateRevisionController[Any], number: int
) -> bool:
    """A read checks whether a revision runs, but not whether one has ended meanwhile."""
    return revisions.is_running


def leaves_the_progress(writer: CursorWriter) -> list[Row]:
    """A deletion removes one of the two rows of a cursor."""
    right_delete_cursor(writer)
    return [(writer._snapshot_key, None)]


def repeats_a_generation(rows: CursorRowsState) -> int:
    """Changes from before a whole row, such as that of a reset, are applied after it."""
    return rows.generation


def forgets_what_was_not_written(changes: CursorChanges) -> None:
    """After a failed write, or a reset, the next row contains only the changes since."""
    changes.restart()


def moves_at_once(
    cursor: Cursor,
    target: CursorState,
    alongside: Callable[[], None] | None,
    submit: SubmitRow | None,
) -> Any:
    """A reset takes effect in memory before it is durable."""
    cursor.state.replace_with(target)
    return right_replace(cursor, target, alongside, submit)


def sleeps_on(reads: CursorReads) -> None:
    """A read that waits for entries is not woken."""


def forgets_consumers_that_left(
    state: MultipleConsumersState, number: int, pieces: Iterable[RecordMask]
) -> None:
    """Pending records are not redelivered when a consumer leaves or requests it."""
    for position, wanted in pieces:
        if records := state._pending.remove_of(number, position, wanted):
            state._release_count(position, number, records)


def breaks_the_order_of_keys(queue: KeyHashQueues, slot: int, position: Position) -> bool:
    """A record is delivered although an earlier one of its key is queued."""
    return True


def hands_out_whole_entries(dispatcher: Dispatcher, entries: Any) -> dict[Position, int]:
    """All records of a partly acknowledged batch are redelivered."""
    return {}


def acknowledges_in_memory(cursor: Cursor) -> Any:
    """A consumer's acknowledgement returns before the cursor is durable."""
    if cursor.writer is not None:
        cursor.writer._write_this_tick()
    return asyncio.sleep(0)


def forgets_to_count(consumer: ConsumerState, count: int) -> None:
    """Permits are not counted."""
    consumer.unacked.add(count)


def stops_at_a_raising_listener(listeners: Listeners) -> None:
    """An exception of a listener is raised in the code that made the change."""
    for listener in tuple(listeners._listeners):
        listener()


def lets_a_timer_end_all_timers(handle: TimerHandle) -> None:
    """A timer's callback raises a BaseException, which is not contained."""
    try:
        handle._callback()
    except InjectedFault as error:
        raise SystemError from error


def stays_open_after_a_fault(subscription: Subscription, error: Exception) -> None:
    """A subscription whose task has failed continues without it."""


def goes_on_after_a_fault(ml: ManagedLedger, error: Exception) -> None:
    """A handle accepts appends after a callback of one, or a listener, has failed."""


async def completes_without_its_cursor(
    compactions: Compactions,
    metadata: MetadataChanges,
    compacted: CompactedLedger,
    rows: Iterable[Row],
) -> None:
    """A compacted ledger becomes visible; the cursor of compactions moves later, if at all."""
    head = metadata.head()
    before = head.compacted
    change = MetadataChange(
        head=replace(head.successor(), compacted=compacted, compacting_id=None),
        dropped=() if before is None else (before.ledger_id,),
    )
    user_rows = [(keys.user_key(key), value) for key, value in rows]
    await submitted(lambda done: metadata.submit(change, done, user_rows))
    compactions._writer = None
    cursor = await compactions._cursors.open(COMPACTION_CURSOR, EARLIEST)
    await cursor.reset(compacted.horizon.successor)


async def forgets_what_it_wrote(
    compactions: Compactions, metadata: MetadataChanges, begun: CompactionWriter | None = None
) -> None:
    """A compaction is aborted without dropping what it has written."""
    if begun is not None:
        await right_abort(compactions, metadata, begun)
        return
    compactions._writer = None
    change = MetadataChange(head=replace(metadata.head().successor(), compacting_id=None))
    await submitted(lambda done: metadata.submit(change, done))


def leaves_unfinished_compactions(
    head: ManagedLedgerRecord,
    ledgers: Sequence[LedgerRecord],
    found: Mapping[int, LedgerRecord],
    *,
    new_ledger_id: int,
    now_ms: int,
) -> MetadataChange:
    """An opening forgets what an interrupted compaction has written."""
    change = right_plan_recovery(head, ledgers, found, new_ledger_id=new_ledger_id, now_ms=now_ms)
    return replace(change, dropped=())


def completes_what_lacks_entries(writer: CompactionWriter) -> None:
    """A compaction is completed after one of its appends has failed."""
    writer._check_running()


def moves_over_what_was_kept(state: CursorState, last: Position) -> bool:
    """Ledgers that are removed move a cursor over what a compaction has kept of them."""
    state.acknowledge_removed(last)
    return True


def forgets_what_was_read(
    positions: CompactedPositions, start: Position, found: Iterable[Position], upto: Position
) -> None:
    """Acknowledgements do not meet across what a compaction has removed."""


def lets_deletions_meet_attempts(deletions: CopyDeletions, attempt: UUID) -> None:
    """What an attempt has written is deleted while it runs."""


def believes_what_it_read_before(deletions: CopyDeletions, key: bytes) -> bool:
    """A deletion is not looked up again before it is worked off."""
    return True


def deletes_a_broken_attempt_once(deletions: CopyDeletions, deletion: CopyDeletion) -> bool:
    """What an attempt wrote last arrives after its deletion."""
    return False


async def ends_an_attempt_before_its_outcome(
    run: Offloads, metadata: MetadataChanges, ledger_id: int, attempt: OffloadContext
) -> None:
    """The objects of an attempt can be deleted while its completion is being written."""
    run._attempt_ends(attempt.attempt)
    await right_complete_offload(run, metadata, ledger_id, attempt)


def names_no_row(
    ledger_id: int, attempt: OffloadContext, head: ManagedLedgerRecord, state: LedgerListState
) -> MetadataChange | None:
    """An attempt begins without a row that has its objects deleted."""
    change = right_prepared(ledger_id, attempt, head, state)
    return None if change is None else replace(change, unneeded=())


def keeps_the_row_of_an_attempt(
    ledger_id: int, complete: OffloadContext, head: ManagedLedgerRecord, state: LedgerListState
) -> MetadataChange | None:
    """An attempt completes, and its objects are deleted."""
    change = right_completed(ledger_id, complete, head, state)
    return None if change is None else replace(change, needed=())


def leaves_the_copies_of_what_is_removed(
    state: LedgerListState, head: ManagedLedgerRecord, ledger_ids: Sequence[int]
) -> MetadataChange:
    """A trim removes the primary copies only."""
    return replace(right_removal(state, head, ledger_ids), unneeded=())


def leaves_the_copies_of_what_is_deleted(record: LedgerRecord) -> list[Row]:
    """A deleted managed ledger leaves its copies in the tier."""
    return []


def asks_the_primary_that_was_deleted(
    tiered: OffloadContext | None, priority: ReadPriority, *, is_tier_paused: bool = False
) -> tuple[ReadSource, ...]:
    """The primary is asked first, whether or not it is there."""
    return (ReadSource.PRIMARY, ReadSource.TIER) if tiered else (ReadSource.PRIMARY,)


async def changes_the_tier_before_the_log_is_synced(committer: Committer) -> None:
    """A power cut undoes rows that the tier has followed already."""


right_complete_offload = Offloads._complete
right_prepared = offload_plan.prepared
right_completed = offload_plan.completed
right_removal = LedgerListState.removal
right_start = Committer._start
right_abort = Compactions._abort
right_plan_recovery = recovery.plan_recovery  # type: ignore[attr-defined]  # as it is patched
right_delete_cursor = CursorWriter.delete
right_replace = Cursor._replace
right_submit_for = Committer.submit_for
right_commit_finished = Committer._commit_finished

MISTAKES = (
    PlantedMistake(Committer, "_start", confirms_before_the_sync, seeds=10),
    PlantedMistake(ManagedLedger, "confirm", confirms_before_the_reader_may_see, seeds=10),
    PlantedMistake(ManagedLedger, "revert", keeps_ids_after_a_failure, seeds=50),
    PlantedMistake(Committer, "submit_for", removes_data_first, seeds=500),
    PlantedMistake(EntryCache, "drop", keeps_the_cache, seeds=1000),
    PlantedMistake(ManagedLedger, "fence", lets_a_stale_owner_go_on, seeds=10),
    PlantedMistake(recovery, "_count", believes_the_mark, seeds=10),
    PlantedMistake(Committer, "_commit_finished", tries_a_sync_again, seeds=500),
    PlantedMistake(CursorWriter, "settle", returns_before_it_is_durable, seeds=200),
    PlantedMistake(retention_plan, "_before_boundary", trims_past_the_slowest, seeds=50),
    PlantedMistake(
        CursorStateRevisionController, "is_outdated", delivers_what_was_read_before, seeds=50
    ),
    PlantedMistake(CursorWriter, "delete", leaves_the_progress, seeds=200),
    PlantedMistake(CursorRowsState, "begin_whole", repeats_a_generation, seeds=500),
    PlantedMistake(CursorChanges, "require_whole_row", forgets_what_was_not_written, seeds=500),
    PlantedMistake(Cursor, "_replace", moves_at_once, seeds=50),
    PlantedMistake(CursorReads, "wake", sleeps_on, seeds=50),
    PlantedMistake(MultipleConsumersState, "_give_back", forgets_consumers_that_left, seeds=500),
    PlantedMistake(KeyHashQueues, "is_first", breaks_the_order_of_keys, seeds=1000),
    PlantedMistake(Dispatcher, "_remaining", hands_out_whole_entries, seeds=300),
    PlantedMistake(Cursor, "wait_durable", acknowledges_in_memory, seeds=200),
    PlantedMistake(ConsumerState, "count_delivered", forgets_to_count, seeds=50),
    PlantedMistake(Listeners, "notify", stops_at_a_raising_listener, seeds=50),
    PlantedMistake(TimerHandle, "fire", lets_a_timer_end_all_timers, seeds=200),
    PlantedMistake(Subscription, "close_after_fault", stays_open_after_a_fault, seeds=200),
    PlantedMistake(Compactions, "_complete", completes_without_its_cursor, seeds=500),
    PlantedMistake(Compactions, "_abort", forgets_what_it_wrote, seeds=500),
    PlantedMistake(recovery, "plan_recovery", leaves_unfinished_compactions, seeds=500),
    PlantedMistake(CompactionWriter, "_check_whole", completes_what_lacks_entries, seeds=500),
    PlantedMistake(CursorState, "ledgers_removed", moves_over_what_was_kept, seeds=500),
    PlantedMistake(CompactedPositions, "note_read", forgets_what_was_read, seeds=300),
    PlantedMistake(CopyDeletions, "attempt_begins", lets_deletions_meet_attempts, seeds=200),
    PlantedMistake(CopyDeletions, "_is_needed", believes_what_it_read_before, seeds=500),
    PlantedMistake(CopyDeletions, "_is_repeated_later", deletes_a_broken_attempt_once, seeds=500),
    PlantedMistake(Offloads, "_complete", ends_an_attempt_before_its_outcome, seeds=500),
    PlantedMistake(offloads, "prepared", names_no_row, seeds=200),
    PlantedMistake(offloads, "completed", keeps_the_row_of_an_attempt, seeds=50),
    PlantedMistake(LedgerListState, "removal", leaves_the_copies_of_what_is_removed, seeds=50),
    PlantedMistake(recovery, "deletion_rows", leaves_the_copies_of_what_is_deleted, seeds=500),
    PlantedMistake(
        entry_sources, "plan_read_sources", asks_the_primary_that_was_deleted, seeds=200
    ),
    PlantedMistake(
        Committer, "make_durable", changes_the_tier_before_the_log_is_synced, seeds=1000
    ),
    PlantedMistake(ManagedLedger, "close_after_fault", goes_on_after_a_fault, seeds=200),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=mistake_name)
def test_a_planted_mistake_is_caught(
    mistake: PlantedMistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, again = expect_caught(mistake, Run, "tests.simulation", monkeypatch)
    assert failure.error == again.error

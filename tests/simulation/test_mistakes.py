"""The simulation finds bugs: known mistakes are planted into the ledger, and every one is caught.

Each is a wrong variant of one method, as somebody could have written it. `seeds` is within how many
seeds from 0 on it must be caught; without a mistake all of them hold (test_simulation).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kledger.ledger import (
    Cursor,
    CursorState,
    CursorStateRevisionController,
    LedgerInfo,
    LedgerState,
    ManagedLedger,
    Position,
    recovery,
)
from kledger.ledger.commits.committer import Committer, Operation, RowsSubmitter, Submitter
from kledger.ledger.cursors.cursor import CursorReads
from kledger.ledger.cursors.cursor_rows_state import CursorRowsState
from kledger.ledger.cursors.cursor_state import CursorChanges
from kledger.ledger.cursors.cursor_writer import CursorWriter
from kledger.ledger.engine.base import Row, StorageEngine
from kledger.ledger.engine.errors import StorageWriteFailed, SyncFailed
from kledger.ledger.metadata import retention_plan
from kledger.ledger.metadata.records import LedgerRecord
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
from tests.simulation.run import Failure, simulation
from tests.simulation.seeds import run_seed

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Mistake:
    """What is put in the place of which method."""

    owner: object
    method: str
    wrong: Callable[..., Any]
    seeds: int


def confirms_before_the_sync(committer: Committer) -> None:
    """A group is confirmed when it is on its way to the thread, not when it is back."""
    right_start(committer)
    if batch := committer._batch_in_flight:
        operations, batch.operations = batch.operations, []
        committer._confirm(operations)


def tells_before_the_reader_may_see(ml: ManagedLedger, operation: Operation) -> None:
    """The callback comes before the last confirmed entry moves."""
    _, position, size, data, done = operation
    done(position, None)
    ml._list.advance(position, size)
    ml._cached_ledger.append(data)


def keeps_ids_after_a_failure(ml: ManagedLedger) -> None:
    """After a failed write the next append takes the next id, as if the lost ones were there."""
    ml._head = ml._list.head
    if ml._handle_state.is_writable:
        ml._set_state(LedgerState.WRITE_FAILED)
    if ml._handle_state.state is not LedgerState.FENCED:
        ml._services.versions.reset(ml.name, ml._head.version)


def removes_data_first(
    committer: Committer, submitter: Submitter, rows: Iterable[Row], drops: Iterable[int] = ()
) -> None:
    """The data of a ledger goes in a group of its own, before the list without it is written."""
    if dropped := list(drops):
        right_submit_for(committer, RowsSubmitter(lambda error: None), (), dropped)
        if committer._batch_in_flight is None:
            committer._start()
    right_submit_for(committer, submitter, rows)


def keeps_the_cache(cache: EntryCache, ledger_id: int) -> None:
    """What was trimmed stays in the cache."""


def lets_a_stale_owner_go_on(ml: ManagedLedger) -> None:
    """A second opening does not fence the first."""


def believes_the_mark(engine: StorageEngine, mark: LedgerRecord, now_ms: int) -> LedgerRecord:
    """The end of the ledger written to is taken from its record, not from its data."""
    return mark


def tries_a_sync_again(committer: Committer, batch: Any, error: Exception | None) -> None:
    """A failed sync is taken for a failed write: its callers are told so, and the store goes on."""
    if isinstance(error, SyncFailed):
        error = StorageWriteFailed(str(error))
    right_commit_finished(committer, batch, error)


async def returns_before_it_is_durable(writer: CursorWriter) -> None:
    """Who acknowledges goes on while the row of the cursor is still on its way."""
    if writer._is_dirty:
        writer._write_this_tick()


def trims_past_the_slowest(
    ledgers: Sequence[LedgerInfo], slowest: Position | None
) -> Sequence[LedgerInfo]:
    """Retention does not ask the cursors."""
    return ledgers[:-1]


def delivers_what_was_read_before(
    revisions: CursorStateRevisionController[Any], number: int
) -> bool:
    """A read looks whether a revision runs, and not whether one has ended meanwhile."""
    return revisions.is_running


def leaves_the_progress(writer: CursorWriter) -> list[Row]:
    """A deletion removes one of the two rows of a cursor."""
    right_delete_cursor(writer)
    return [(writer._snapshot_key, None)]


def repeats_a_generation(rows: CursorRowsState) -> int:
    """Changes from before a whole row, such as that of a reset, go on from it, too."""
    return rows.generation


def forgets_what_was_not_written(changes: CursorChanges) -> None:
    """After a failed write, or a reset, the next row tells only what came since."""
    changes.restart()


def moves_at_once(cursor: Cursor, target: CursorState, alongside: Callable[[], None] | None) -> Any:
    """A reset is true in memory before it is durable."""
    cursor.state.replace_with(target)
    return right_replace(cursor, target, alongside)


def sleeps_on(reads: CursorReads) -> None:
    """Nobody wakes who waits for entries."""


def forgets_who_left(
    state: MultipleConsumersState, number: int, pieces: Iterable[RecordMask]
) -> None:
    """What a consumer had is not handed out again when it leaves, or asks for it."""
    for position, wanted in pieces:
        if records := state._pending.remove_of(number, position, wanted):
            state._release_count(position, number, records)


def breaks_the_order_of_keys(queue: KeyHashQueues, slot: int, position: Position) -> bool:
    """Nobody asks whether a record of the same key waits before another one."""
    return True


def hands_out_whole_entries(dispatcher: Dispatcher, entries: Any) -> dict[Position, int]:
    """Of a batch that was acknowledged in parts all records come again."""
    return {}


def acknowledges_in_memory(cursor: Cursor) -> Any:
    """A consumer goes on before the cursor is durable."""
    if cursor.writer is not None:
        cursor.writer._write_this_tick()
    return asyncio.sleep(0)


def forgets_to_count(consumer: ConsumerState, count: int) -> None:
    """Nobody runs out of permits."""
    consumer.unacked.add(count)


def lets_a_listener_keep_others_from_hearing(listeners: Listeners) -> None:
    """What a listener raises goes to whoever has changed something."""
    for listener in tuple(listeners._listeners):
        listener()


def lets_a_timer_end_all_timers(handle: TimerHandle) -> None:
    """What a callback of a timer raises is no Exception that could be contained."""
    try:
        handle._callback()
    except InjectedFault as error:
        raise SystemError from error


def stays_open_after_a_fault(subscription: Subscription, error: Exception) -> None:
    """A subscription whose task has died goes on without it."""


def goes_on_after_a_fault(ml: ManagedLedger, error: Exception) -> None:
    """A handle takes appends though the callback of one, or a listener, has failed."""


right_start = Committer._start
right_delete_cursor = CursorWriter.delete
right_replace = Cursor._replace
right_submit_for = Committer.submit_for
right_commit_finished = Committer._commit_finished

MISTAKES = (
    Mistake(Committer, "_start", confirms_before_the_sync, seeds=10),
    Mistake(ManagedLedger, "confirm", tells_before_the_reader_may_see, seeds=10),
    Mistake(ManagedLedger, "revert", keeps_ids_after_a_failure, seeds=50),
    Mistake(Committer, "submit_for", removes_data_first, seeds=500),
    Mistake(EntryCache, "drop", keeps_the_cache, seeds=1000),
    Mistake(ManagedLedger, "fence", lets_a_stale_owner_go_on, seeds=10),
    Mistake(recovery, "_count", believes_the_mark, seeds=10),
    Mistake(Committer, "_commit_finished", tries_a_sync_again, seeds=500),
    Mistake(CursorWriter, "settle", returns_before_it_is_durable, seeds=200),
    Mistake(retention_plan, "_before_boundary", trims_past_the_slowest, seeds=50),
    Mistake(CursorStateRevisionController, "is_outdated", delivers_what_was_read_before, seeds=50),
    Mistake(CursorWriter, "delete", leaves_the_progress, seeds=200),
    Mistake(CursorRowsState, "begin_whole", repeats_a_generation, seeds=500),
    Mistake(CursorChanges, "require_whole_row", forgets_what_was_not_written, seeds=500),
    Mistake(Cursor, "_replace", moves_at_once, seeds=50),
    Mistake(CursorReads, "wake", sleeps_on, seeds=50),
    Mistake(MultipleConsumersState, "_give_back", forgets_who_left, seeds=500),
    Mistake(KeyHashQueues, "is_first", breaks_the_order_of_keys, seeds=1000),
    Mistake(Dispatcher, "_remaining", hands_out_whole_entries, seeds=50),
    Mistake(Cursor, "wait_durable", acknowledges_in_memory, seeds=200),
    Mistake(ConsumerState, "count_delivered", forgets_to_count, seeds=50),
    Mistake(Listeners, "notify", lets_a_listener_keep_others_from_hearing, seeds=50),
    Mistake(TimerHandle, "fire", lets_a_timer_end_all_timers, seeds=200),
    Mistake(Subscription, "close_after_fault", stays_open_after_a_fault, seeds=200),
    Mistake(ManagedLedger, "close_after_fault", goes_on_after_a_fault, seeds=200),
)


def first_failure(seeds: Iterable[int]) -> Failure | None:
    with simulation():
        return next((failure for seed in seeds if (failure := run_seed(seed))), None)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.wrong.__name__)
def test_a_planted_mistake_is_caught(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistake.owner, mistake.method, mistake.wrong)
    failure = first_failure(range(mistake.seeds))
    assert failure is not None, f"not caught within {mistake.seeds} seeds"
    assert f"--seed {failure.seed} --trace" in str(failure)
    again = first_failure([failure.seed])
    assert again is not None
    assert (failure.step, failure.error, failure.trace) == (again.step, again.error, again.trace)

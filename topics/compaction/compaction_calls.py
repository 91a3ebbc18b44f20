"""Compaction calls: what a server has a compute process do for one run of the compactor.

Rule: the state of a session is what `begin_run` returns. It gets all batches in the order of the
log by `index_batches` (with a strategy by `compare_batches`), then the same batches in the same
order by `rebuild_batches`, and then `count_records`. Only the process loads what computes, and
numpy with it: a server that names these functions loads neither.
Must not know: ledgers, the event loop.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kledger.batches.pacing import Pause
from kledger.topics.compaction.compaction_rules import (
    BatchOrigin,
    CompactionCounts,
    CompactionRules,
    RebuiltBatch,
)

if TYPE_CHECKING:
    from kledger.topics.compaction.compaction_run import CompactionRun

PROCESS_BYTES_MIN = 480 << 20
"""Memory of the process beside the table of keys: 50 MiB of its own, a batch of 128 MiB twice, and
what is returned."""
_BATCHES_PER_PAUSE = 64
"""Of those that stay as they are, or go whole: a tenth of a millisecond."""


def begin_run(rules: CompactionRules) -> "CompactionRun":
    """Return the state of a run."""
    from kledger.topics.compaction.compaction_run import CompactionRun  # noqa: PLC0415 - see above

    return CompactionRun(rules)


def index_batches(
    run: "CompactionRun", data: memoryview, sizes: Sequence[int], pause: Pause
) -> None:
    """Phase one: take in the next batches of the log.

    Args:
        run: the state of the session.
        data: stored batches, one after the other.
        sizes: of each batch.
        pause: see `batches.pacing`.

    Raises:
        BatchError: a batch cannot be read; the message names its base offset.
        TooManyRecords: the memory of the run is too small for the number of records.
        OSError: the temporary file cannot be written.
    """
    position = 0
    for size in sizes:
        run.index_batch(data[position : position + size], pause)
        position += size
    run.flush(pause)


def compare_batches(
    run: "CompactionRun",
    data: memoryview,
    sizes: Sequence[int],
    origins: Sequence[tuple[int, int, int]],
    pause: Pause,
) -> None:
    """Phase one of a run with a strategy; like `index_batches`.

    Args:
        run: the state of the session.
        data: stored batches, one after the other.
        sizes: of each batch.
        origins: of each batch; see `BatchOrigin`.
        pause: see `batches.pacing`.

    Raises:
        StrategyFailed: the strategy has raised an error.
        BatchError, TooManyRecords, OSError: see `index_batches`.
    """
    position = 0
    for size, origin in zip(sizes, origins, strict=True):
        run.index_batch(data[position : position + size], pause, BatchOrigin(*origin))
        position += size


def rebuild_batches(  # noqa: PLR0917 - a session passes arguments by position
    run: "CompactionRun",
    data: memoryview,
    sizes: Sequence[int],
    delete_horizons_ms: Sequence[int],
    is_end: bool,
    pause: Pause,
) -> tuple[RebuiltBatch, ...]:
    """Phase two: return what becomes of the next batches; the first call ends phase one.

    Args:
        run: the state of the session.
        data: the batches of phase one again, one after the other.
        sizes: of each batch.
        delete_horizons_ms: of each batch, what the previous run returned for it; 0 for none.
        is_end: the last of these batches is the last of all.
        pause: see `batches.pacing`.

    Raises:
        StrategyFailed: the strategy of the run has raised an error.
        OSError: the temporary file cannot be read or written.
    """
    assert sizes or not is_end, "the last batch would have come as any other"
    run.end_indexing(pause)
    position = 0
    rebuilt = []
    last = len(sizes) - 1 if is_end else -1
    for index, (size, horizon_ms) in enumerate(zip(sizes, delete_horizons_ms, strict=True)):
        batch = data[position : position + size]
        rebuilt.append(run.rebuild_batch(batch, horizon_ms, pause, is_last=index == last))
        position += size
        if not index % _BATCHES_PER_PAUSE:
            pause()
    return tuple(rebuilt)


def count_records(
    run: "CompactionRun", data: memoryview, sizes: Sequence[int], pause: Pause
) -> CompactionCounts:
    """Return what the run has read, kept and dropped, after phase two."""
    return run.counts

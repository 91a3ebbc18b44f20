"""Words for tests of compaction: logs of batches, a run over one, what a consumer reads of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kledger.batches.builder import NO_PRODUCER, BatchProducer, NewRecord, build_batch
from kledger.batches.header import read_header
from kledger.batches.pacing import no_pause
from kledger.batches.reader import iterate_records
from kledger.batches.record import Record
from kledger.topics.compaction.compaction_calls import (
    begin_run,
    compare_batches,
    count_records,
    index_batches,
    rebuild_batches,
)
from kledger.topics.compaction.compaction_rules import (
    AbortedOffsets,
    BatchOutcome,
    CompactionCounts,
    CompactionRules,
    RebuiltBatch,
)
from kledger.topics.compaction.strategy_rule import StrategyRule
from tests.topics.compaction.strategies import open_here

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000
UNLIMITED = 64 << 20
Pair = tuple[str | None, str | None]


def log_batch(
    base_offset: int,
    *pairs: Pair,
    codec: int = 0,
    producer: BatchProducer = NO_PRODUCER,
    timestamp: int = NOW_MS,
) -> bytes:
    """Build a stored batch of keys and values; its records' times are a millisecond apart."""
    records = [
        NewRecord(
            None if value is None else value.encode(),
            key=None if key is None else key.encode(),
            timestamp=timestamp + index,
        )
        for index, (key, value) in enumerate(pairs)
    ]
    return bytes(build_batch(records, codec=codec, producer=producer, base_offset=base_offset))


@dataclass(frozen=True)
class Stored:
    """A batch and the delete horizon that is stored beside it."""

    batch: bytes
    delete_horizon_ms: int = 0


@dataclass(frozen=True)
class Compacted:
    """What a run returned."""

    rebuilt: tuple[RebuiltBatch, ...]
    stored: list[Stored]
    counts: CompactionCounts

    @property
    def outcomes(self) -> str:
        """One letter for each batch: unchanged, rebuilt, dropped."""
        return "".join(each.outcome.name[0] for each in self.rebuilt)

    @property
    def pairs(self) -> list[Pair]:
        """Keys and values that a consumer reads."""
        return [(_text(each.key), _text(each.value)) for each in records_of(self.stored)]


def rules(
    *,
    now_ms: int = NOW_MS,
    aborted: Iterable[AbortedOffsets] = (),
    memory_bytes_max: int = UNLIMITED,
    folder: Path | str = "/tmp",
    delete_retention_ms: int = RETENTION_MS,
    strategy: str = "",
) -> CompactionRules:
    return CompactionRules(
        now_ms,
        delete_retention_ms,
        tuple(aborted),
        memory_bytes_max,
        str(folder),
        StrategyRule(strategy, "orders", 0, open_here) if strategy else None,
    )


def compact(
    log: Sequence[Stored | bytes],
    run_rules: CompactionRules | None = None,
    *,
    step: int = 3,
    first_offset: int = 0,
) -> Compacted:
    """Compact a whole log, some batches a call; a strategy sees the records from an offset on."""
    stored = [each if isinstance(each, Stored) else Stored(each) for each in log]
    run_rules = run_rules or rules()
    run = begin_run(run_rules)
    chunks = [stored[start : start + step] for start in range(0, len(stored), step)]
    for chunk in chunks:
        if run_rules.strategy is None:
            index_batches(run, *_data(chunk), no_pause)
        else:
            origins = [(3, number, first_offset) for number in range(len(chunk))]
            compare_batches(run, *_data(chunk), origins, no_pause)
    rebuilt: list[RebuiltBatch] = []
    for chunk in chunks:
        horizons = [each.delete_horizon_ms for each in chunk]
        is_end = chunk is chunks[-1]
        rebuilt += rebuild_batches(run, *_data(chunk), horizons, is_end, no_pause)
    kept = [
        Stored(
            bytes(new.data) if new.outcome is BatchOutcome.REBUILT else old.batch,
            new.delete_horizon_ms,
        )
        for old, new in zip(stored, rebuilt, strict=True)
        if new.outcome is not BatchOutcome.DROPPED
    ]
    counts = count_records(run, memoryview(b""), [], no_pause)
    return Compacted(tuple(rebuilt), kept, counts)


def records_of(stored: Iterable[Stored]) -> list[Record]:
    """All records of a log, markers too."""
    return [record for each in stored for record in iterate_records(each.batch)]


def end_of(stored: Sequence[Stored]) -> int:
    """Where a consumer stands that has read everything."""
    return read_header(stored[-1].batch).last_offset + 1


def _data(chunk: Sequence[Stored]) -> tuple[memoryview, list[int]]:
    batches = [each.batch for each in chunk]
    return memoryview(b"".join(batches)), [len(each) for each in batches]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()

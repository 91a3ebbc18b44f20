"""Results of appending to and reading from a partition, and the translation of ledger errors.

Rule: an error of one partition is a value in its result; a result with an error has no offsets.
Must not know: appends, reads.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kledger import ledger
from kledger.batches.buffers import Buffer
from kledger.batches.errors import BatchError
from kledger.ledger import AlreadyClosed, LedgerError, Position, Terminated
from kledger.topics.errors import (
    CompactionRunning,
    OffloadRunning,
    PartitionTerminated,
    TopicsError,
    TopicStorageFailed,
    UnknownPartition,
)

NO_OFFSET = -1


class AppendResult(NamedTuple):
    """What became of a batch.

    Attributes:
        log_append_time_ms: the time its records got, -1 under CreateTime.
        position: of its entry; None for a duplicate of a batch that is older than the tail.
    """

    error: TopicsError | None
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    position: Position | None = None


class ReadResult(NamedTuple):
    """Whole stored batches, the first of which holds the offset that was asked for."""

    error: TopicsError | None
    chunks: list[Buffer]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class LogLocation(NamedTuple):
    """Where a record is.

    Attributes:
        batch_index: which record of the entry it is.
        batch_size: how many the entry has; 0 after the last entry.
    """

    position: Position
    batch_index: int
    batch_size: int


AppendDone = Callable[[AppendResult], None]


def rejected(error: TopicsError, log_start_offset: int) -> AppendResult:
    """The result of an append that did not happen."""
    return AppendResult(error, NO_OFFSET, -1, log_start_offset)


def failed_read(error: TopicsError) -> ReadResult:
    """The result of a read that failed."""
    return ReadResult(error, [], 0, NO_OFFSET, NO_OFFSET, NO_OFFSET)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate the errors that ledger and batches raise in a block."""
    try:
        yield
    except LedgerError as error:
        raise from_ledger_error(error) from error
    except BatchError as error:
        raise TopicStorageFailed(f"stored entry is no batch: {error}") from error


def from_ledger_error(error: LedgerError) -> TopicsError:
    """Translate an error of the ledger."""
    if isinstance(error, AlreadyClosed):
        return UnknownPartition(str(error))
    if isinstance(error, Terminated):
        return PartitionTerminated(str(error))
    if isinstance(error, ledger.CompactionRunning):
        return CompactionRunning(str(error))
    if isinstance(error, ledger.OffloadInProgress):
        return OffloadRunning(str(error))
    return TopicStorageFailed(str(error))

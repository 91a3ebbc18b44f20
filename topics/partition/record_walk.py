"""Record walk: the check of every record of a produced batch, where the header is not enough.

Rule: it uses its arguments alone, so it may run in another process; its result is valid for the
configuration under which it ran. A compressed body may hold a thousand times its size: only a walk
that is bounded before it begins runs on the event loop.
Must not know: offsets, producers, callers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kledger.batches.compression import Codec
from kledger.batches.errors import BatchError, DecompressedTooLarge
from kledger.batches.header import BATCH_OVERHEAD, BatchHeader
from kledger.batches.validation import NO_TIMESTAMP, check_records
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.errors import TopicsError

INLINE_BYTES_MAX = 4096
"""An uncompressed body up to this size is walked on the event loop: a call in a thread costs more.
Measured: docs/decisions/0018."""


class WalkResult(NamedTuple):
    """The result of a walk.

    Attributes:
        config: of the topic, during the walk.
        largest_timestamp: of all records, without an error.
        error: the rule that the records break, or why they could not be walked.
    """

    config: TopicConfig
    largest_timestamp: int = NO_TIMESTAMP
    error: BatchError | TopicsError | None = None


@dataclass(frozen=True, slots=True)
class RecordWalk:
    """A walk that is needed.

    Attributes:
        batch: exactly one; it must not change until the walk has ended.
        header: of the batch.
        config: of its topic.
        now_ms: wall time, for the rules about times.
    """

    batch: memoryview
    header: BatchHeader
    config: TopicConfig
    now_ms: int

    @property
    def cost(self) -> int:
        """Bytes that the walk reads; for a compressed body the most that `run_inline` reads."""
        if self.header.codec == Codec.NONE:
            return self.header.size - BATCH_OVERHEAD
        return INLINE_BYTES_MAX

    def run_inline(self) -> WalkResult | None:
        """Check every record; None if the body turns out to be too large for the event loop."""
        rules = self.config.record_rules(self.now_ms)._replace(size_max=INLINE_BYTES_MAX)
        try:
            return WalkResult(self.config, check_records(self.batch, self.header, rules))
        except DecompressedTooLarge:
            return None
        except BatchError as error:
            return WalkResult(self.config, error=error)


class WalkNeeded(Exception):
    """The records have to be walked before the batch can be admitted; nothing has changed.

    It is no error: the caller repeats the append with the result of the walk.
    """

    def __init__(self, walk: RecordWalk) -> None:
        super().__init__(f"{walk.header.record_count} records to be walked")
        self.walk = walk


def walk_inline(needed: WalkNeeded, fits_in_tick: Callable[[int], bool]) -> WalkResult:
    """Return the result of a short walk; raise `needed` for a long one.

    Args:
        needed: the walk that `admit` requires.
        fits_in_tick: see `ComputePool.fits_in_tick`.
    """
    walk = needed.walk
    walked = walk.run_inline() if fits_in_tick(walk.cost) else None
    if walked is None:
        raise needed
    return walked

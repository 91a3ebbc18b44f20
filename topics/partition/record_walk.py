"""Record walk: the look at every record of a produced batch that its header does not spare.

Rule: it needs nothing but what it was given, so it may run in a thread; its outcome is good for the
configuration under which it ran. What is compressed may hold a thousand times its size: only a walk
that is bounded before it begins is done at once.
Must not know: offsets, producers, who waits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kledger.batches.compression import Codec
from kledger.batches.errors import BatchError, DecompressedTooLarge
from kledger.batches.header import BATCH_OVERHEAD, BatchHeader
from kledger.batches.pacing import Pause, no_pause
from kledger.batches.validation import NO_TIMESTAMP, check_records
from kledger.topics.config.topic_config import TopicConfig

INLINE_BYTES_MAX = 4096
"""A body that is no larger, uncompressed, is walked where the append is: the way to a thread and
back costs more. Measured: docs/decisions/0018."""


class WalkResult(NamedTuple):
    """What a walk has found.

    Attributes:
        config: what held in the topic.
        largest_timestamp: of all records, if nothing is wrong.
        error: what is wrong.
    """

    config: TopicConfig
    largest_timestamp: int = NO_TIMESTAMP
    error: BatchError | None = None


@dataclass(frozen=True, slots=True)
class RecordWalk:
    """A walk that is to be done.

    Attributes:
        batch: exactly one; nobody may change it until the walk has ended.
        header: of it.
        config: what holds in its topic.
        now_ms: wall time, for the rules about times.
    """

    batch: memoryview
    header: BatchHeader
    config: TopicConfig
    now_ms: int

    @property
    def cost(self) -> int:
        """Bytes that are looked at; of what is compressed as many as `run_inline` would."""
        if self.header.codec == Codec.NONE:
            return self.header.size - BATCH_OVERHEAD
        return INLINE_BYTES_MAX

    def run(self, pause: Pause = no_pause) -> WalkResult:
        """Look at every record."""
        rules = self.config.record_rules(self.now_ms)
        try:
            return WalkResult(self.config, check_records(self.batch, self.header, rules, pause))
        except BatchError as error:
            return WalkResult(self.config, error=error)

    def run_inline(self) -> WalkResult | None:
        """Look at every record of a body that is not too large; else return None."""
        rules = self.config.record_rules(self.now_ms)._replace(size_max=INLINE_BYTES_MAX)
        try:
            return WalkResult(self.config, check_records(self.batch, self.header, rules))
        except DecompressedTooLarge:
            return None
        except BatchError as error:
            return WalkResult(self.config, error=error)


class WalkNeeded(Exception):
    """The records have to be walked before the batch can be admitted; nothing has changed.

    It is no error: the append is to be repeated with the outcome.
    """

    def __init__(self, walk: RecordWalk) -> None:
        super().__init__(f"{walk.header.record_count} records to be walked")
        self.walk = walk


def walk_inline(needed: WalkNeeded, fits_in_tick: Callable[[int], bool]) -> WalkResult:
    """Return the outcome of a short walk; raise what asks for a long one.

    Args:
        needed: what asks for it.
        fits_in_tick: tells whether a call of some cost may be made now; see `runtime.compute_pool`.
    """
    walk = needed.walk
    walked = walk.run_inline() if fits_in_tick(walk.cost) else None
    if walked is None:
        raise needed
    return walked

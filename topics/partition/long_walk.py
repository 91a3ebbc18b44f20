"""Long walk: a record walk off the event loop.

Rule: whatever ends it becomes its result, so an append has one way to reject a batch.
Must not know: which batches need a walk, what their result decides.
"""

from kledger.batches.errors import BatchError
from kledger.batches.validation import check_records
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcessDied
from kledger.topics.errors import TopicStorageFailed
from kledger.topics.partition.record_walk import RecordWalk, WalkResult


async def run_walk(walk: RecordWalk, compute_pool: ComputePool) -> WalkResult:
    """Check every record of a batch. Raises PoolClosed."""
    config = walk.config
    job = (walk.batch, walk.header, config.record_rules(walk.now_ms))
    try:
        (largest_timestamp,) = await compute_pool.map(check_records, [job])
    except BatchError as error:
        return WalkResult(config, error=error)
    except ComputeProcessDied as error:
        return WalkResult(config, error=TopicStorageFailed(f"records not read: {error}"))
    return WalkResult(config, largest_timestamp)

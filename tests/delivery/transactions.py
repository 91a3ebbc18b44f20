"""Transactional producers that write to a partition log, without a coordinator."""

import asyncio
from collections.abc import Callable

from kledger.ledger import Position
from kledger.topics.partition.partition_log import PartitionLog
from kledger.topics.partition.results import AppendResult
from kledger.topics.partition.transaction_state import TransactionEnd
from tests.batches.words import batch


class Writer:
    """One producer in one partition."""

    def __init__(self, log: PartitionLog, producer_id: int) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0

    async def write(self, *values: str) -> Position:
        """Append a batch in a transaction; the first one begins it."""
        data = batch(*values, producer=self.producer_id, sequence=self.sequence, transactional=True)
        self.sequence += len(values)
        return await appended(
            lambda done: self.log.append_nowait(memoryview(data), done, is_verified=True)
        )

    async def end(self, *, commit: bool) -> Position:
        """Append the marker."""
        return await appended(
            lambda done: self.log.append_marker_nowait(
                TransactionEnd(self.producer_id, 0, is_commit=commit), done
            )
        )


async def appended(
    append: Callable[[Callable[[AppendResult], None]], AppendResult | None],
) -> Position:
    """Append something, and say where it is."""
    completion: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    assert append(completion.set_result) is None
    result = await completion
    assert result.error is None
    assert result.position is not None
    return result.position

"""Decides which pending messages of a partition are sent next.

Rule: messages leave in their order. Those that may share a batch do so, up to the limits; messages
that must be alone leave together, each in a batch of its own.
Must not know: futures, links, time.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

BATCH_COUNT_MAX = 1_000
BATCH_BYTES_MAX = 256 << 10
BATCHES_MAX = 5
"""Batches that are in flight at once: a partition remembers as many of a producer."""
SINGLES_MAX = 100
"""Batches of one message that are in flight at once."""


class WaitingMessage(Protocol):
    """What the plan asks of a message: `message_encoder.OutgoingMessage`."""

    @property
    def size(self) -> int:
        """Its approximate bytes."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether it must be the only message of its batch."""
        ...


class SendBatchPlan(NamedTuple):
    """The next `message_count` messages, in one batch or in one batch each."""

    message_count: int
    is_together: bool


def plan_send(waiting: Iterable[WaitingMessage], *, is_batching: bool) -> SendBatchPlan:
    """Return how many messages leave next; 0 only if none waits.

    A message above the size limit gets a batch of its own.
    """
    count = size = 0
    is_together = False
    for message in waiting:
        may_join = is_batching and not message.is_alone
        if count == 0:
            is_together = may_join
        elif may_join != is_together:
            break
        size += message.size
        if is_together and (count == BATCH_COUNT_MAX or (count and size > BATCH_BYTES_MAX)):
            break
        if not is_together and count == SINGLES_MAX:
            break
        count += 1
    return SendBatchPlan(count, is_together)

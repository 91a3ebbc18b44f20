"""Idle partitions: closes those that nobody uses, so that memory has only those in use.

Rule: nobody notices. What somebody waits for, or has a transaction open in, stays open; who wants a
partition while it closes waits for that, and opens it again. Some are closed together, so that they
share what is synced.
Must not know: how long a round is.
"""

import asyncio
import logging
from collections.abc import Iterable

from kledger.runtime.clock import Clock
from kledger.topics.errors import TopicsError
from kledger.topics.topic import Topic

logger = logging.getLogger(__name__)

CLOSED_TOGETHER_MAX = 64
TOPICS_LOOKED_AT_MAX = 500
"""So many in one turn of the loop."""


async def close_idle_partitions(topics: Iterable[Topic], rounds: int, clock: Clock) -> int:
    """End a round; close what nobody has used for so many, and return how many those were."""
    idle: list[tuple[Topic, int]] = []
    for number, topic in enumerate(topics, 1):
        idle += [(topic, index) for index in topic.idle_partitions(rounds)]
        if number % TOPICS_LOOKED_AT_MAX == 0:
            await clock.sleep(0)
    for start in range(0, len(idle), CLOSED_TOGETHER_MAX):
        some = idle[start : start + CLOSED_TOGETHER_MAX]
        await asyncio.gather(*(_close(topic, index) for topic, index in some))
    return len(idle)


async def _close(topic: Topic, index: int) -> None:
    try:
        await topic.close_partition(index, only_if_idle=True)
    except TopicsError as error:
        logger.warning("closing idle %s-%d: %s", topic.name, index, error)

"""Compaction of a topic, as a client asks for it and waits for its end.

Rule: the server compacts whether a client waits or not; the client asks again and again how far it
is, so a connection that is lost meanwhile does no harm.
Must not know: how a topic is compacted.
"""

from dataclasses import dataclass

from kledger.native.broker import BrokerAdmin, TopicCompactionStatus
from kledger.native.errors import Unavailable
from kledger.native.message_id import MessageId
from kledger.runtime.clock import Clock

POLL_MS_MIN = 10
POLL_MS_MAX = 1_000
RUNNING, ERROR = "running", "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStatus:
    """How far the compaction of a topic has come.

    Attributes:
        state: `not_run`, `running`, `success` or `error`; of the last run, also of one before a
            restart of the server if that was a success.
        error: why it failed, with the partition; empty unless it did.
        started_ms, ended_ms: wall time; None if it is not known, or has not come.
        horizon: the id of the last message that is compacted, one a partition; None: no message is.
    """

    state: str
    error: str
    started_ms: int | None
    ended_ms: int | None
    horizon: list[MessageId | None]


def status_of(found: TopicCompactionStatus) -> CompactionStatus:
    """Return the status with ids of messages."""
    return CompactionStatus(
        state=found.state,
        error=found.error,
        started_ms=found.started_ms,
        ended_ms=found.ended_ms,
        horizon=[
            None if record is None else MessageId.at(record, partition)
            for partition, record in enumerate(found.horizons)
        ],
    )


async def compact(broker: BrokerAdmin, clock: Clock, topic: str) -> None:
    """Begin to compact a topic, and wait for the end.

    Raises:
        TopicNotFound: there is no such topic.
        CompactionRunning: it is being compacted.
        Unavailable: it failed, and nothing has changed in the partitions that failed.
    """
    await broker.start_compaction(topic)
    delay_ms = POLL_MS_MIN
    while (status := await broker.compaction_status(topic)).state == RUNNING:
        await clock.sleep(delay_ms)
        delay_ms = min(2 * delay_ms, POLL_MS_MAX)
    if status.state == ERROR:
        raise Unavailable(f"topic {topic} was not compacted: {status.error}")

"""Offloading a topic, as a client asks for it and waits for its end.

Rule: the server offloads whether a client waits or not; the client asks again and again how far it
is, so a connection that is lost meanwhile does no harm.
Must not know: how a topic is offloaded.
"""

from dataclasses import dataclass

from kledger.ledger import Position
from kledger.native.broker import BrokerAdmin, TopicOffloadStatus
from kledger.native.client.compaction import ERROR, POLL_MS_MAX, POLL_MS_MIN, RUNNING
from kledger.native.errors import Unavailable
from kledger.native.message_id import MessageId
from kledger.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadStatus:
    """How far the offloading of a topic has come.

    Attributes:
        state: `not_run`, `running`, `success` or `error`; of the last run since the server started.
        error: why it failed, with the partition; empty unless it did.
        ledgers_left: closed ledgers with messages that are not offloaded.
    """

    state: str
    error: str
    ledgers_left: int


def status_of(found: TopicOffloadStatus) -> OffloadStatus:
    """Return the status for users."""
    return OffloadStatus(state=found.state, error=found.error, ledgers_left=found.ledgers_left)


async def offload(
    broker: BrokerAdmin, clock: Clock, topic: str, until: MessageId | None
) -> list[MessageId | None]:
    """Begin to offload a topic, and wait for the end.

    Returns:
        For each partition the first position that is not offloaded; its entry is 0, or that after
        the last one if everything is offloaded.

    Raises:
        TopicNotFound: there is no such topic.
        OffloadInProgress: it is being offloaded.
        NotAllowed: the server has no tier.
        Unavailable: it failed for some ledgers.
    """
    position: Position | None = None if until is None else until.position
    partition = None if until is None else until.partition
    await broker.start_offload(topic, position, partition)
    delay_ms = POLL_MS_MIN
    while (status := await broker.offload_status(topic)).state == RUNNING:
        await clock.sleep(delay_ms)
        delay_ms = min(2 * delay_ms, POLL_MS_MAX)
    if status.state == ERROR:
        raise Unavailable(f"topic {topic} was not offloaded: {status.error}")
    return [
        MessageId(end.ledger_id, end.entry_id, partition=number)
        for number, end in enumerate(status.ends)
    ]

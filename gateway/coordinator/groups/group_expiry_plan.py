"""Group expiry plan: which offsets of a group expire, and from when their age counts.

Rule: pure; a group with members keeps the offsets of the topics that they read. The age of an
offset counts from when the group became empty; for tools, consumers that assign partitions
themselves and groups of the consumer protocol, from the commit.
Must not know: rows, timers.

Source: KIP-211.
"""

from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup, ClassicGroupState
from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer.consumer_protocol_plan import (
    CONSUMER_PROTOCOL,
    subscribed_topics,
)
from kledger.offsets import ExpiryRule
from kledger.topics.topic_names import resolve_name


def expiry_rule(
    group: ClassicGroup | ConsumerGroup,
    *,
    empty_since_ms: int | None,
    now_ms: int,
    retention_ms: int,
) -> ExpiryRule | None:
    """Return the rule by which offsets of this group expire now; None if none may.

    Args:
        group: the group.
        empty_since_ms: wall time at which it was stored without members; None if it was not.
        now_ms: wall time.
        retention_ms: the age at which an offset expires.
    """
    if isinstance(group, ConsumerGroup):
        kept = frozenset(group.topics_in_use)
        return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms, kept_topics=kept)
    if group.protocol_type is None:
        return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms)
    if group.state is ClassicGroupState.EMPTY and empty_since_ms is not None:
        return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms, counted_from_ms=empty_since_ms)
    if group.state is ClassicGroupState.STABLE:
        topics = topics_in_use(group)
        if topics is not None:
            return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms, kept_topics=topics)
    return None


def topics_in_use(group: ClassicGroup | ConsumerGroup) -> frozenset[str] | None:
    """Return the topics that members read; None if unknown, then all count as in use."""
    if isinstance(group, ConsumerGroup):
        return frozenset(group.topics_in_use)
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    topics = subscribed_topics(
        member.metadata(group.protocol_name) or member.protocols[0][1]
        for member in group.roster.members.values()
    )
    # Offsets are stored under the one name to which all spellings of a topic resolve.
    return None if topics is None else frozenset(resolve_name(topic) for topic in topics)

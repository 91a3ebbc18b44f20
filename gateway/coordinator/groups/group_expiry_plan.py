"""Group expiry plan: from when the offsets of a group are counted, and which it still uses.

Rule: pure; offsets of a group that lives are kept as long as a member reads the topic, those of an
empty group are counted from the moment it became empty, those of tools, of consumers without a
group and of groups of the consumer protocol from each commit.
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
    """Return what expires in this group now; None when nothing may."""
    if isinstance(group, ConsumerGroup):
        kept = frozenset(group.topics_in_use)
        return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms, kept_topics=kept)
    if group.protocol_type is None:
        return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms)
    if group.state is ClassicGroupState.EMPTY:
        return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms, counted_from_ms=empty_since_ms)
    if group.state is ClassicGroupState.STABLE:
        topics = topics_in_use(group)
        if topics is not None:
            return ExpiryRule(now_ms=now_ms, retention_ms=retention_ms, kept_topics=topics)
    return None


def topics_in_use(group: ClassicGroup | ConsumerGroup) -> frozenset[str] | None:
    """Return the topics that members read; None when that cannot be known: then all are in use."""
    if isinstance(group, ConsumerGroup):
        return frozenset(group.topics_in_use)
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    topics = subscribed_topics(
        member.metadata(group.protocol_name) or member.protocols[0][1]
        for member in group.roster.members.values()
    )
    # Offsets are kept under the one name that every spelling of a topic stands for.
    return None if topics is None else frozenset(resolve_name(topic) for topic in topics)

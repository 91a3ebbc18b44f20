"""Consumer target state: which partitions the members of a consumer group are meant to own.

Rule: pure; the target is worked out anew when members, subscriptions or topics have changed since,
and never otherwise.
Must not know: what members own at the moment, time.
"""

from collections import Counter
from dataclasses import replace

from kledger.gateway.coordinator.consumer_assignor_plan import ASSIGNORS, Interest
from kledger.gateway.coordinator.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer_interest_plan import Interests
from kledger.gateway.coordinator.consumer_messages import TopicCatalog


def renew_target(group: ConsumerGroup, catalog: TopicCatalog) -> None:
    """See whether topics came, went or grew, and assign anew if anything has changed."""
    if group.catalog_epoch == catalog.epoch:
        return
    interests = Interests(catalog)
    topics = interests.of_all(group.roster)
    if topics != group.topics:
        group.topics = topics
        # Who came or went has moved the epoch already.
        if group.epoch == group.assignment_epoch:
            group.grow_epoch()
    if group.epoch > group.assignment_epoch:
        _assign(group, interests)
    group.catalog_epoch = catalog.epoch


def _assign(group: ConsumerGroup, interests: Interests) -> None:
    wanted = {
        member.member_id: Interest(
            rank=member.instance_id or member.member_id,
            topic_ids=frozenset(fact.topic_id for fact in interests.of(member).values()),
            before=member.target,
        )
        for member in group.roster
    }
    counts = {fact.topic_id: fact.partition_count for fact in group.topics.values()}
    group.assignor = _chosen_assignor(group)
    for member_id, target in ASSIGNORS[group.assignor](wanted, counts).items():
        group.replace_member(replace(group.roster.member(member_id), target=target))
    group.assignment_epoch = group.epoch


def _chosen_assignor(group: ConsumerGroup) -> str:
    """Return what most members ask for, else what the settings name first."""
    wishes = Counter(one.server_assignor for one in group.roster if one.server_assignor)
    return wishes.most_common(1)[0][0] if wishes else group.config.consumer_assignors[0]

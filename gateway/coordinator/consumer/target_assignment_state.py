"""Consumer target state: which partitions the members of a consumer group are meant to own.

Rule: pure; the target is worked out anew when members, subscriptions or topics have changed since,
and never otherwise.
Must not know: what members own at the moment, time.
"""

from collections import Counter
from dataclasses import replace

from kledger.gateway.coordinator.assignor_plan import ASSIGNORS, MemberSubscription
from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer.subscribed_topics_plan import SubscribedTopics
from kledger.gateway.coordinator.consumer_messages import TopicCatalog


def update_target_assignment(group: ConsumerGroup, catalog: TopicCatalog) -> None:
    """See whether topics came, went or grew, and assign anew if anything has changed."""
    if group.catalog_epoch == catalog.epoch:
        return
    subscriptions = SubscribedTopics(catalog)
    topics = subscriptions.of_all(group.roster)
    if topics != group.topics:
        group.topics = topics
        # Who came or went has moved the epoch already.
        if group.epoch == group.assignment_epoch:
            group.bump_epoch()
    if group.epoch > group.assignment_epoch:
        _assign(group, subscriptions)
    group.catalog_epoch = catalog.epoch


def _assign(group: ConsumerGroup, subscriptions: SubscribedTopics) -> None:
    wanted = {
        member.member_id: MemberSubscription(
            rank=member.instance_id or member.member_id,
            topic_ids=frozenset(
                topic_metadata.topic_id for topic_metadata in subscriptions.of(member).values()
            ),
            previous=member.target,
        )
        for member in group.roster
    }
    counts = {
        topic_metadata.topic_id: topic_metadata.partition_count
        for topic_metadata in group.topics.values()
    }
    group.assignor = _chosen_assignor(group)
    for member_id, target in ASSIGNORS[group.assignor](wanted, counts).items():
        group.replace_member(replace(group.roster.member(member_id), target=target))
    group.assignment_epoch = group.epoch


def _chosen_assignor(group: ConsumerGroup) -> str:
    """Return what most members ask for, else what the settings name first."""
    wishes = Counter(one.server_assignor for one in group.roster if one.server_assignor)
    return wishes.most_common(1)[0][0] if wishes else group.config.consumer_assignors[0]

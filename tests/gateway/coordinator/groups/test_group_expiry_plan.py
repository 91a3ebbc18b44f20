"""From when the age of offsets counts, in each state of a group."""

from kledger.gateway.coordinator.groups.group_expiry_plan import expiry_rule, topics_in_use
from kledger.offsets import ExpiryRule
from tests.gateway.coordinator.consumer.test_consumer_protocol_plan_topics import subscription
from tests.gateway.coordinator.consumer_words import ConsumerWorld
from tests.gateway.coordinator.group_words import GroupWorld

READS_T = (("range", subscription("t")),)


def rule_of(world: GroupWorld, empty_since_ms: int | None = None) -> ExpiryRule | None:
    return expiry_rule(world.group, empty_since_ms=empty_since_ms, now_ms=5_000, retention_ms=1_000)


def test_standalone_offsets_are_counted_from_each_commit() -> None:
    assert rule_of(GroupWorld()) == ExpiryRule(now_ms=5_000, retention_ms=1_000)


def test_empty_group_is_counted_from_when_it_became_empty() -> None:
    world = GroupWorld()
    world.stable("a")
    world.leave("a")

    assert rule_of(world, empty_since_ms=4_500) == ExpiryRule(
        now_ms=5_000, retention_ms=1_000, counted_from_ms=4_500
    )
    assert rule_of(world) is None, "that it is empty could not be stored"


def test_stable_group_keeps_the_offsets_of_its_topics() -> None:
    world = GroupWorld()
    world.stable("a", protocols=READS_T)

    assert rule_of(world) == ExpiryRule(
        now_ms=5_000, retention_ms=1_000, kept_topics=frozenset({"t"})
    )


def test_nothing_expires_while_subscriptions_are_unknown() -> None:
    rebalancing = GroupWorld()
    rebalancing.completing("a", protocols=READS_T)
    assert rule_of(rebalancing) is None

    unreadable = GroupWorld()
    unreadable.stable("a", protocols=(("range", b"?"),))
    assert rule_of(unreadable) is None

    connect = GroupWorld()
    connect.stable("a", protocol_type="connect")
    assert rule_of(connect) is None


def test_new_member_counts_with_its_first_protocol() -> None:
    world = GroupWorld()
    world.stable("a", protocols=READS_T)
    world.new("b", protocols=(("range", subscription("u")),))
    assert world.state == "PreparingRebalance"

    assert topics_in_use(world.group) == frozenset({"t", "u"})


def test_longer_spellings_of_a_topic_count_as_the_topic() -> None:
    world = GroupWorld()
    spelling = "persistent://public/default/t"
    world.stable("a", protocols=(("range", subscription(spelling)),))

    assert topics_in_use(world.group) == frozenset({"t"})


def test_group_of_the_consumer_protocol_counts_from_each_commit() -> None:
    world = ConsumerWorld()
    world.join("a")
    rule = ExpiryRule(now_ms=5_000, retention_ms=1_000, kept_topics=frozenset({"t"}))

    def rule_now(empty_since_ms: int | None) -> ExpiryRule | None:
        return expiry_rule(
            world.group, empty_since_ms=empty_since_ms, now_ms=5_000, retention_ms=1_000
        )

    assert rule == rule_now(None)
    assert frozenset({"t"}) == topics_in_use(world.group)
    world.heartbeat("a", -1)
    assert ExpiryRule(now_ms=5_000, retention_ms=1_000) == rule_now(4_000)

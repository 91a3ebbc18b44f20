"""Retention that waits for groups, of which another broker coordinates some."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kledger.gateway.cluster_offsets import PUBLISH_MS, ClusterOffsets
from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kledger.topics import Topic
from tests.gateway.running import RunningGateway, batch, produce, running_brokers, until
from tests.topics.words import SMALL_SEGMENTS

WAITING = {**SMALL_SEGMENTS, "retention.bytes": "0", "kledger.retention.waits.for": "groups"}
COUNT = 20


async def made(brokers: Sequence[RunningGateway], configs: Mapping[str, str]) -> Topic:
    """A topic of one partition that the first broker leads, full of what retention may remove."""
    one, other = brokers
    topic = await one.services.registry.create("t", partitions=1, configs=configs, assigned=[1])
    await until(lambda: other.services.registry.get("t") is not None)
    async with one.client() as client:
        for number in range(COUNT):
            data = batch(b"%030d" % number, timestamp=one.clock.now_ms())
            answer = await client.ask(produce({0: data}), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    return topic


def group_of(broker: RunningGateway) -> str:
    """The id of a group that a broker coordinates."""
    return next(
        name
        for name in (f"group-{number}" for number in range(1_000))
        if not broker.services.groups.error(name)
    )


async def commit(broker: RunningGateway, offset: int) -> None:
    """Commit an offset of a group of a broker."""
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group_of(broker),
        topics=[OffsetCommitRequestTopic(name="t", partitions=[asked])],
    )
    async with broker.client() as client:
        answer = await client.ask(request, 8)
    assert answer.topics[0].partitions[0].error_code == 0


def offsets_of(broker: RunningGateway) -> ClusterOffsets:
    offsets = broker.services.cluster_offsets
    assert offsets is not None
    return offsets


def lowest(broker: RunningGateway, topic: Topic) -> int | None:
    return broker.services.lowest_committed("t", topic.id, 0)


async def published(broker: RunningGateway, other: RunningGateway, topic: Topic) -> None:
    """Publish the offsets of a broker, and wait until the other one knows them."""
    await offsets_of(broker).publish()
    other_sees = offsets_of(other)._published
    mine = (topic.id, broker.services.config.node_id)
    await until(lambda: other_sees.get(mine) == offsets_of(broker)._published.get(mine))


async def test_retention_waits_for_the_slowest_group_of_any_broker(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as brokers:
        one, other = brokers
        topic = await made(brokers, WAITING)
        log = await topic.open_partition(0)
        await commit(one, COUNT)
        registry = one.services.registry
        await registry.enforce_retention(one.services.lowest_committed)
        assert log.log_start_offset == 0, "the other broker has not published anything"
        await commit(other, 11)
        await published(other, one, topic)
        assert lowest(one, topic) == 11
        await registry.enforce_retention(one.services.lowest_committed)
        assert 5 < log.log_start_offset <= 11
        await commit(other, COUNT)
        await published(other, one, topic)
        await registry.enforce_retention(one.services.lowest_committed)
        assert log.log_start_offset == COUNT


async def test_broker_without_commits_says_so(tmp_path: Path) -> None:
    """As with one broker, a group without a commit delays nothing."""
    async with running_brokers(tmp_path) as brokers:
        one, other = brokers
        topic = await made(brokers, WAITING)
        assert (lowest(one, topic), lowest(other, topic)) == (0, 0)
        await published(other, one, topic)
        assert lowest(one, topic) is None
        await commit(one, 7)
        assert lowest(one, topic) == 7


async def test_only_changes_of_waiting_topics_are_written(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as brokers:
        one, other = brokers
        topic = await made(brokers, {**WAITING, "kledger.retention.waits.for": ""})
        rows = offsets_of(other)._published.durable
        await commit(other, 7)
        await offsets_of(other).publish()
        assert rows == {}
        await one.services.registry.alter_configs("t", WAITING)
        await until(lambda: topic.config.waits_for_groups)
        followed = other.services.registry.get("t")
        assert followed is not None
        await until(lambda: followed.config.waits_for_groups)
        await published(other, one, topic)
        (record,) = rows.values()
        assert record == {0: 7}
        await offsets_of(other).publish()
        assert next(iter(rows.values())) is record, "nothing has changed"
        await one.services.registry.delete("t")
        await until(lambda: other.services.registry.get("t") is None)
        await offsets_of(other).publish()
        assert rows == {}


async def test_offsets_are_published_at_intervals(tmp_path: Path) -> None:
    async with running_brokers(tmp_path) as brokers:
        one, other = brokers
        topic = await made(brokers, WAITING)
        await commit(other, 3)
        services = other.services
        services.supervisor.spawn(offsets_of(other).publish_at_intervals(other.clock), "publishing")
        await until(lambda: lowest(one, topic) == 3)
        await commit(other, 9)
        before_ms = other.clock.monotonic_ms()

        def has_come() -> bool:
            other.clock.advance(PUBLISH_MS // 10)
            return lowest(one, topic) == 9

        await until(has_come)
        assert other.clock.monotonic_ms() - before_ms >= PUBLISH_MS

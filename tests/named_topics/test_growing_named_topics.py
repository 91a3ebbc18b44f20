"""Named topics of several brokers that get partitions, from any broker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kledger.ledger.testing import FaultyEngine
from kledger.named_topics.errors import WrongArgument
from kledger.named_topics.model import NamedTopicOptions
from kledger.named_topics.service import NamedTopicService
from kledger.runtime.timers import Timers
from kledger.topics.errors import InvalidPartitions
from tests.delivery.sharing_brokers import BROKERS, SharingBroker, brokers

OPTIONS = NamedTopicOptions()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[list[SharingBroker]]:
    async with brokers(tmp_path, [FaultyEngine(None) for _ in BROKERS]) as running:
        yield running


def service(at: SharingBroker) -> NamedTopicService:
    return NamedTopicService(
        store=at.store,
        registry=at.registry,
        partitions=at.partitions,
        clock=at.clock,
        timers=Timers(at.clock, at.supervisor),
        supervisor=at.supervisor,
    )


async def leaders(at: SharingBroker, name: str = "jobs") -> tuple[int, ...]:
    await at.tables.refresh()
    topic = at.registry.get(name)
    assert topic is not None
    return topic.record.leaders


@pytest.mark.parametrize("decider", BROKERS)
async def test_channels_that_a_kafka_client_adds_anywhere_are_its_leaders(
    cluster: list[SharingBroker], decider: int
) -> None:
    """They went to all brokers, and then no call of the named topic succeeded any more."""
    named = service(cluster[1])
    await named.open("jobs", channel_count=2, options=OPTIONS, create=True)
    await cluster[decider].tables.refresh()
    await cluster[decider].registry.create_partitions("jobs", 4)
    assert (1, 1, 1, 1) == await leaders(cluster[1])
    found = await named.open("jobs", channel_count=0, options=OPTIONS, create=False)
    assert 4 == found.channel_count
    named.check_named("jobs")


async def test_its_channels_cannot_be_assigned_to_others(cluster: list[SharingBroker]) -> None:
    await service(cluster[1]).open("jobs", channel_count=2, options=OPTIONS, create=True)
    await cluster[0].tables.refresh()
    with pytest.raises(InvalidPartitions, match="expected broker 1 to lead all of them, got 0, 2"):
        await cluster[0].registry.create_partitions("jobs", 5, [2, 1, 0])
    await cluster[0].registry.create_partitions("jobs", 3, [1])
    assert (1, 1, 1) == await leaders(cluster[1])


async def test_a_topic_that_becomes_a_named_topic_stays_at_its_broker(
    cluster: list[SharingBroker],
) -> None:
    await cluster[0].registry.create("jobs", partitions=2, assigned=[2, 2])
    await service(cluster[2]).open("jobs", channel_count=0, options=OPTIONS, create=True)
    await cluster[0].tables.refresh()
    await cluster[0].registry.create_partitions("jobs", 4)
    assert (2, 2, 2, 2) == await leaders(cluster[0])


async def test_a_topic_that_grows_meanwhile_does_not_become_one(
    cluster: list[SharingBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does not know the new partitions yet when it looks at the leaders."""
    await cluster[0].registry.create("jobs", partitions=1, assigned=[2])
    await cluster[2].tables.refresh()
    monkeypatch.setattr("kledger.ledger.shared_folder._Wakes.wake_others", lambda _wakes: None)
    await cluster[0].registry.create_partitions("jobs", 2, [0])
    named = service(cluster[2])
    with pytest.raises((InvalidPartitions, WrongArgument), match="expected one broker"):
        await named.open("jobs", channel_count=0, options=OPTIONS, create=True)
    assert [] == named.names()

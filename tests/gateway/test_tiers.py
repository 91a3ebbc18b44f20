"""Tiered storage in Kafka's words: settings of topics and brokers, offsets, reads, deletions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kledger.topics.offloading import Offloading
from tests.gateway.running import RunningGateway, batch, fetch, produce, running_gateway
from tests.gateway.wire_client import WireClient
from tests.topics.tier_words import MemoryFolders

INVALID_CONFIG, STORAGE_ERROR, UNSUPPORTED_VERSION = 40, 56, 35
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -2, -4, -5, -6
TOPIC, SET = 2, 0


@dataclass
class TieredGateway:
    """A gateway with a tier in memory, a client, and rounds of offloading."""

    gateway: RunningGateway
    client: WireClient
    tier: MemoryFolders

    async def fill(self, count: int, **configs: str) -> None:
        """Make a topic of ledgers of two batches, and write batches of one record."""
        given = {name.replace("_", "."): text for name, text in configs.items()}
        await self.gateway.create_topic("t", configs={"internal.segment.bytes": "120", **given})
        for number in range(count):
            response = await self.client.ask(produce({0: batch(b"%d" % number)}), 9)
            assert 0 == response.responses[0].partition_responses[0].error_code

    async def round(self) -> None:
        """Do what the settings demand."""
        services = self.gateway.services
        await Offloading(
            services.registry, services.store, services.clock, services.supervisor
        ).run_due()

    async def offset(self, time: int, version: int = 11) -> tuple[int, int]:
        """Ask for a special time; return error and offset."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=time)
        topics = [ListOffsetsTopic(name="t", partitions=[asked])]
        response = await self.client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), version)
        (found,) = response.topics[0].partitions
        return found.error_code, found.offset

    async def read(self, offset: int) -> tuple[int, int]:
        """Fetch; return error and how many bytes there were."""
        response = await self.client.ask(fetch({0: offset}), 12)
        (found,) = response.responses[0].partitions
        return found.error_code, len(found.records or b"")


@asynccontextmanager
async def tiered_gateway() -> AsyncIterator[TieredGateway]:
    tier = MemoryFolders()
    async with (
        running_gateway(cache_bytes=0, tier=tier) as gateway,
        gateway.client() as client,
    ):
        yield TieredGateway(gateway, client, tier)


async def test_offsets_of_a_topic_without_copies() -> None:
    async with tiered_gateway() as tiered:
        await tiered.fill(5)
        assert [(0, 0), (0, -1), (0, -1)] == [
            await tiered.offset(time) for time in (EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD)
        ]


async def test_offsets_follow_copies_and_removals() -> None:
    async with tiered_gateway() as tiered:
        await tiered.fill(7, remote_storage_enable="true", local_retention_bytes="0")
        assert (0, 0) == await tiered.offset(PENDING_UPLOAD)
        await tiered.round()
        assert [(0, 0), (0, 6), (0, 5), (0, 6)] == [
            await tiered.offset(time)
            for time in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD)
        ]
        partition = DeleteRecordsPartition(partition_index=0, offset=3)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[partition])]
        )
        response = await tiered.client.ask(request, 2)
        assert (0, 3) == (
            response.topics[0].partitions[0].error_code,
            response.topics[0].partitions[0].low_watermark,
        )
        assert [(0, 3), (0, 6), (0, 5)] == [
            await tiered.offset(time) for time in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)
        ]
        assert (1, 0) == await tiered.read(2)
        error, size = await tiered.read(3)
        assert error == 0
        assert size > 0


@pytest.mark.parametrize(
    ("time", "since"), [(EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
)
async def test_special_times_have_versions(time: int, since: int) -> None:
    async with tiered_gateway() as tiered:
        await tiered.fill(1)
        assert UNSUPPORTED_VERSION == (await tiered.offset(time, since - 1))[0]
        assert 0 == (await tiered.offset(time, since))[0]


async def test_dead_tier_is_a_storage_error_of_what_only_it_has() -> None:
    async with tiered_gateway() as tiered:
        await tiered.fill(5, remote_storage_enable="true", local_retention_bytes="0")
        await tiered.round()
        assert 0 == (await tiered.read(0))[0]
        tiered.tier.set_down(is_down=True)
        assert (STORAGE_ERROR, 0) == await tiered.read(0)
        error, size = await tiered.read(4)
        assert error == 0
        assert size > 0
        response = await tiered.client.ask(produce({0: batch(b"more")}), 9)
        assert 0 == response.responses[0].partition_responses[0].error_code


async def test_remote_storage_needs_a_tier() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t")
        config = CreatableTopicConfig(name="remote.storage.enable", value="true")
        new = CreatableTopic(name="x", num_partitions=1, replication_factor=-1, configs=[config])
        created = await client.ask(CreateTopicsRequest(topics=[new]), 7)
        altered = await client.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=TOPIC,
                        resource_name="t",
                        configs=[
                            AlterableConfig(
                                name="remote.storage.enable", config_operation=SET, value="true"
                            )
                        ],
                    )
                ]
            ),
            1,
        )
        for result in (created.topics[0], altered.responses[0]):
            assert INVALID_CONFIG == result.error_code
            assert "offload.url" in (result.error_message or "")

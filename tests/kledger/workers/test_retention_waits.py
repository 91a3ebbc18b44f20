"""Retention of one worker waits for a group that another one coordinates."""

from pathlib import Path

from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.gateway.running import batch, produce
from tests.gateway.wire_client import WireClient
from tests.kledger.workers.running_workers import RunningWorkers

CONFIGS = {
    "segment.bytes": "1048576", "retention.bytes": "0", "kledger.retention.waits.for": "groups",
}  # fmt: skip
COUNT, COMMITTED = 6, 4
EARLIEST = -2


async def addresses(running: RunningWorkers) -> list[tuple[str, int]]:
    """The addresses of the workers, when both are ready."""
    for _ in range(2):
        running.wait_next_worker()
    host, _, port = running.ready["kafka"].rpartition(":")
    async with WireClient(host, int(port)) as client:
        brokers = (await client.ask(MetadataRequest(topics=[]), 12)).brokers
    return [(each.host, each.port) for each in brokers]


async def fill(leader: WireClient) -> None:
    """Make a topic of the first worker, with a record in each of its ledgers."""
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
        configs=[CreatableTopicConfig(name=name, value=CONFIGS[name]) for name in CONFIGS],
    )
    answer = await leader.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert answer.topics[0].error_code == 0, answer
    for _ in range(COUNT):
        answer = await leader.ask(produce({0: batch(bytes(700_000))}), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


async def commit(client: WireClient) -> None:
    """Commit an offset of a group that the second worker coordinates."""
    names = [f"group-{number}" for number in range(100)]
    found = await client.ask(FindCoordinatorRequest(coordinator_keys=names), 4)
    group = next(each.key for each in found.coordinators if each.node_id == 2)
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=COMMITTED)
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=[asked])]
    )
    answer = await client.ask(request, 8)
    assert answer.topics[0].partitions[0].error_code == 0


async def log_start(client: WireClient) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    found: int = (await client.ask(request, 5)).topics[0].partitions[0].offset
    return found


async def test_records_stay_until_the_group_of_another_worker_has_read_them(
    tmp_path: Path,
) -> None:
    """Workers publish at their start, and then each 30 seconds: hence the second start."""
    with RunningWorkers("--data", str(tmp_path)) as running:
        first, second = await addresses(running)
        async with WireClient(*first) as leader, WireClient(*second) as other:
            await fill(leader)
            await commit(other)
        running.stop()
    interval = "log.retention.check.interval.ms=50"
    with RunningWorkers("--data", str(tmp_path), "--set", interval) as running:
        first, _ = await addresses(running)
        async with WireClient(*first) as leader:
            while not await log_start(leader):
                pass
            assert await log_start(leader) == COMMITTED

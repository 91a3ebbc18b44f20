"""A producer that is sent to the wrong worker learns the leader from the answer (KIP-951)."""

from pathlib import Path

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from tests.gateway.running import batch, produce
from tests.gateway.wire_client import WireClient
from tests.kledger.workers.running_workers import RunningWorkers

VERSION = 12
METADATA = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)


async def until_known(client: WireClient) -> None:
    """Wait until a worker has followed the creation of the topic."""
    while (await client.ask(METADATA, VERSION)).topics[0].error_code:
        pass


async def test_producer_goes_on_at_the_leader_that_the_wrong_worker_names(tmp_path: Path) -> None:
    with RunningWorkers("--data", str(tmp_path)) as running:
        for _ in range(2):
            running.wait_next_worker()
        host, _, port = running.ready["kafka"].rpartition(":")
        async with WireClient(host, int(port)) as client:
            topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
            metadata = await client.ask(METADATA, VERSION)
        addresses = {each.node_id: (each.host, each.port) for each in metadata.brokers}
        leaders = {each.partition_index: each.leader_id for each in metadata.topics[0].partitions}
        assert set(leaders.values()) == addresses.keys()
        for index, leader in leaders.items():
            (wrong,) = addresses.keys() - {leader}
            async with WireClient(*addresses[wrong]) as client:
                await until_known(client)
                answer = await client.ask(produce({index: batch(b"a")}), VERSION)
            (refused,) = answer.responses[0].partition_responses
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader.leader_id == leader
            known = metadata.topics[0].partitions[index].leader_epoch
            assert refused.current_leader.leader_epoch == known
            (endpoint,) = answer.node_endpoints
            assert endpoint.node_id == leader
            async with WireClient(endpoint.host, endpoint.port) as client:
                answer = await client.ask(produce({index: batch(b"a")}), VERSION)
            (stored,) = answer.responses[0].partition_responses
            assert (stored.error_code, stored.base_offset) == (0, 0)

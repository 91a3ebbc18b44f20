"""AlterReplicaLogDirs, as Apache Kafka 4.3 answers with one folder."""

import pytest

from kledger.gateway.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kledger.gateway.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from tests.gateway.running import running_gateway

NONE, UNKNOWN_TOPIC, LOG_DIR_NOT_FOUND = 0, 3, 57
ASKED = {"t": [0, 1, 2, -1], "nowhere": [0]}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("is_there", "outcomes"),
    [
        (True, {"t": [NONE, NONE, UNKNOWN_TOPIC, UNKNOWN_TOPIC], "nowhere": [UNKNOWN_TOPIC]}),
        (False, {"t": [LOG_DIR_NOT_FOUND] * 4, "nowhere": [LOG_DIR_NOT_FOUND]}),
    ],
)
async def test_partitions_are_in_the_one_folder(
    is_there: bool, outcomes: dict[str, list[int]], version: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("t", partitions=2)
        (shown,) = (await client.ask(DescribeLogDirsRequest(topics=None), 4)).results
        path = shown.log_dir if is_there else "/elsewhere"
        topics = [AlterReplicaLogDirTopic(name=name, partitions=ASKED[name]) for name in ASKED]
        folder = AlterReplicaLogDir(path=path, topics=topics)
        answer = await client.ask(AlterReplicaLogDirsRequest(dirs=[folder]), version)
        assert outcomes == {
            topic.topic_name: [each.error_code for each in topic.partitions]
            for topic in answer.results
        }
        assert ASKED == {
            topic.topic_name: [each.partition_index for each in topic.partitions]
            for topic in answer.results
        }

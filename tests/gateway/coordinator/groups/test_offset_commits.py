"""Checks of one committed partition."""

import pytest

from kledger.gateway.coordinator.groups.offset_commits import commit_error, committed_offset
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k08_offset_commit import OffsetCommitRequestPartition
from kledger.offsets import NO_EXPIRY
from tests.gateway.running import running_gateway


@pytest.mark.parametrize(
    ("index", "metadata", "error"),
    [
        (0, None, ErrorCode.NONE),
        (1, "", ErrorCode.NONE),
        (1, "xxxx", ErrorCode.NONE),
        (1, "xxxxx", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (1, "\N{SNOWMAN}" * 4, ErrorCode.NONE),
        (1, "\N{GRINNING FACE}" * 2, ErrorCode.NONE),
        (1, "\N{GRINNING FACE}" * 2 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_partition_and_metadata_are_checked(
    index: int, metadata: str | None, error: ErrorCode
) -> None:
    """The length is in UTF-16 code units: a character outside of the basic plane has two."""
    async with running_gateway() as gateway:
        topic = await gateway.create_topic(partitions=2)
        asked = OffsetCommitRequestPartition(partition_index=index, committed_metadata=metadata)
        assert error is commit_error(topic, asked, 4)


async def test_stored_offset_carries_the_id_of_its_topic() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic()
        asked = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=2, committed_metadata=None
        )
        kept = committed_offset(topic, asked, now_ms=7)
        assert (5, 2, "", 7, NO_EXPIRY, topic.id) == kept

"""What a client must not reach with requests of others: markers, control batches, member ids."""

import struct
from typing import Any

import pytest
from crc32c import crc32c

from kledger.batches.builder import build_control_batch
from kledger.gateway.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.gateway.authorized import authorizing_gateway, client_of
from tests.gateway.group_client import LEAVE_V, GroupClient
from tests.gateway.running import produce
from tests.security.acl_words import allow

GROUP_FAILED, CLUSTER_FAILED, TRANSACTIONAL_ID_FAILED, INVALID_RECORD = 30, 31, 53, 87
CRC_AT, ATTRIBUTES_AT = 17, 21
TRANSACTIONAL_BIT = 0x10


def control_batch(*, is_transactional: bool) -> bytes:
    """Return the marker of a commit."""
    batch = build_control_batch(
        is_commit=True,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=4,
        timestamp_ms=1,
        base_offset=0,
    )
    if not is_transactional:
        (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_AT)
        struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes & ~TRANSACTIONAL_BIT)
        struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


@pytest.mark.parametrize(
    ("is_transactional", "expected"), [(True, TRANSACTIONAL_ID_FAILED), (False, INVALID_RECORD)]
)
async def test_control_batch_of_a_client_is_refused(is_transactional: bool, expected: int) -> None:
    """It would end a transaction of another producer."""
    batch = control_batch(is_transactional=is_transactional)
    rules = [allow("WRITE", "TOPIC:t")]
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        topic = await gateway.create_topic()
        for version in (3, 9):
            answer = await client.ask(produce({0: batch}), version)
            assert expected == answer.responses[0].partition_responses[0].error_code
        log = topic.partition(0)
        assert log is not None
        assert 0 == log.high_watermark


async def test_markers_of_a_client_without_the_right_are_refused() -> None:
    rules = [allow("ALL", "TOPIC:*"), allow("ALL", "TRANSACTIONAL_ID:*")]
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        topic = await gateway.create_topic()
        marker = WritableTxnMarker(
            producer_id=9,
            producer_epoch=1,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )
        answer: Any = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        (result,) = answer.markers
        assert [CLUSTER_FAILED] == [
            partition.error_code for each in result.topics for partition in each.partitions
        ]
        log = topic.partition(0)
        assert log is not None
        assert 0 == log.high_watermark


async def test_member_id_of_another_is_of_no_use_without_the_right() -> None:
    async with (
        authorizing_gateway([allow("READ", "GROUP:g")]) as gateway,
        client_of(gateway, "alice") as alice,
        client_of(gateway, "mallory") as mallory,
    ):
        member = GroupClient(alice)
        await member.join()
        await member.sync(member)
        thief = GroupClient(mallory)
        thief.member_id, thief.generation = member.member_id, member.generation
        assert GROUP_FAILED == await thief.heartbeat()
        assert GROUP_FAILED == (await thief.sync(thief)).error_code
        assert GROUP_FAILED == await thief.commit()
        assert GROUP_FAILED == (await thief.join()).error_code
        identity = MemberIdentity(member_id=member.member_id)
        left = await mallory.ask(LeaveGroupRequest(group_id="g", members=[identity]), LEAVE_V)
        assert GROUP_FAILED == left.error_code
        assert 0 == await member.heartbeat(), "still a member"

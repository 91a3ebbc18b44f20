"""A broker that may have lost its cluster does not say what is the newest."""

from typing import Any

import pytest

from kledger.gateway.newest_answers import NOT_CURRENT_ERRORS
from kledger.gateway.served_apis import HANDLERS_BY_KEY
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from kledger.gateway.wire.messages.k16_list_groups import ListGroupsRequest
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kledger.gateway.wire.schema import fields_of
from tests.gateway.running import batch, fetch, produce, running_gateway

LATEST = -1
LIST_OFFSETS = ListOffsetsRequest(
    topics=[
        ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
        )
    ]
)
VERIFICATION = AddPartitionsToTxnRequest(
    transactions=[
        AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=1,
            producer_epoch=0,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
    ]
)
MARKERS = WriteTxnMarkersRequest(
    markers=[
        WritableTxnMarker(
            producer_id=1,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        )
    ]
)


def codes_of(answer: Any) -> set[ErrorCode]:
    """Return the error codes of an answer and of all that it contains."""
    found = {ErrorCode(answer.error_code)} if hasattr(answer, "error_code") else set()
    for field in fields_of(type(answer)):
        value = getattr(answer, field.name)
        for each in value if isinstance(value, list) else ():
            found |= codes_of(each)
    return found


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (LIST_OFFSETS, 7, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
            8,
            ErrorCode.NOT_COORDINATOR,
        ),
        (OffsetFetchRequest(group_id="g", topics=None), 7, ErrorCode.NOT_COORDINATOR),
        (FindCoordinatorRequest(key="g"), 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (FindCoordinatorRequest(coordinator_keys=["g"]), 4, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (HeartbeatRequest(group_id="g", member_id="m"), 4, ErrorCode.NOT_COORDINATOR),
        (ListGroupsRequest(), 4, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (VERIFICATION, 4, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (MARKERS, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_answer_is_refused_only_while_the_broker_cannot_know(
    request_: Any, version: int, error: ErrorCode
) -> None:
    is_current = True
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        gateway.services.is_current = lambda: is_current
        assert error not in codes_of(await client.ask(request_, version))
        is_current = False
        assert error in codes_of(await client.ask(request_, version))
        is_current = True
        assert error not in codes_of(await client.ask(request_, version))


async def test_the_answer_to_a_peer_names_what_it_asked_about() -> None:
    """Its coordinator would otherwise take silence about a partition for a refusal of nothing."""
    async with running_gateway() as gateway, gateway.client() as client:
        gateway.services.is_current = lambda: False
        answer = await client.ask(MARKERS, 1)
        (marker,) = answer.markers
        (topic,) = marker.topics
        (partition,) = topic.partitions
        assert (1, "t", 0) == (marker.producer_id, topic.name, partition.partition_index)
        assert [] == (await client.ask(WriteTxnMarkersRequest(markers=[]), 1)).markers


async def test_records_are_fetched_all_the_same() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        gateway.services.is_current = lambda: False
        await client.ask(produce({0: batch(b"v")}), 9)
        answer = await client.ask(fetch({0: 0}), 12)
        assert 0 == answer.responses[0].partitions[0].error_code


def test_every_row_is_an_api_that_is_served() -> None:
    assert set(NOT_CURRENT_ERRORS) <= set(HANDLERS_BY_KEY)

"""Each API's answer for groups and transactional ids that are not served here, over a socket.

Clients that get NOT_COORDINATOR ask for the coordinator again.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from kledger.gateway.wire.messages.k11_join_group import JoinGroupRequest
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from kledger.gateway.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kledger.gateway.wire.messages.k14_sync_group import SyncGroupRequest
from kledger.gateway.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kledger.gateway.wire.messages.k16_list_groups import ListGroupsRequest
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kledger.gateway.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from kledger.gateway.wire.messages.k26_end_txn import EndTxnRequest
from kledger.gateway.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kledger.gateway.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kledger.gateway.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kledger.gateway.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from kledger.gateway.wire.messages.k66_list_transactions import ListTransactionsRequest
from kledger.gateway.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from kledger.gateway.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from kledger.gateway.wire.schema import ApiMessage, Struct
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.txn_client import TxnClient
from tests.gateway.wire_client import WireClient

ALL = range(64)
LOADING, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS = 14, 16, 19

COMMITTED = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])
TXN_COMMITTED = TxnOffsetCommitRequestTopic(
    name="t", partitions=[TxnOffsetCommitRequestPartition()]
)
ADDED = AddPartitionsToTxnTopic(name="t", partitions=[0])
FETCHED = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])

OF_GROUPS: list[tuple[ApiMessage, int]] = [
    (OffsetCommitRequest(group_id="g", topics=[COMMITTED]), 9),
    (OffsetCommitRequest(group_id="new", topics=[COMMITTED]), 9),
    (OffsetFetchRequest(group_id="g", topics=[FETCHED]), 1),
    (OffsetFetchRequest(group_id="g", topics=[FETCHED]), 7),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9),
    (JoinGroupRequest(group_id="g", session_timeout_ms=10_000, member_id="m"), 9),
    (LeaveGroupRequest(group_id="g", member_id="m"), 1),
    (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), 5),
    (SyncGroupRequest(group_id="g", member_id="m"), 3),
    (DescribeGroupsRequest(groups=["g"]), 5),
    (DescribeGroupsRequest(groups=["g"]), 6),
    (TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[TXN_COMMITTED]), 3),
    (TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[TXN_COMMITTED]), 5),
    (DeleteGroupsRequest(groups_names=["g"]), 2),
    (
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition()])
            ],
        ),
        0,
    ),
    (
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
    ),
    (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3), 1),
    (ConsumerGroupDescribeRequest(group_ids=["g"]), 1),
]
OF_TRANSACTIONS: list[tuple[ApiMessage, int]] = [
    (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000), 5),
    (InitProducerIdRequest(transactional_id="new", transaction_timeout_ms=1_000), 1),
    (
        AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=[ADDED]),
        3,
    ),
    *(
        (
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id="x", topics=[ADDED], verify_only=verify_only
                    )
                ]
            ),
            5,
        )
        for verify_only in (False, True)
    ),
    (AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), 4),
    (EndTxnRequest(transactional_id="x", committed=True), 4),
    (EndTxnRequest(transactional_id="x", committed=True), 5),
    (DescribeTransactionsRequest(transactional_ids=["x"]), 0),
]


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as gateway:
        await gateway.create_topic(partitions=2)
        async with gateway.client() as client:
            producer = TxnClient(client)
            assert 0 == await producer.init()
            assert 0 == await producer.add_group("g")
            assert 0 == await producer.commit_offset("g", 7)
        yield gateway


def errors(answer: object) -> Iterator[int]:
    """Iterate over every error code in an answer, wherever it is."""
    if isinstance(answer, list | tuple):
        for each in answer:
            yield from errors(each)
    elif isinstance(answer, Struct | ApiMessage):
        for name in type(answer).__annotations__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                yield value
            else:
                yield from errors(value)


async def refusals(gateway: RunningGateway, request: ApiMessage, version: int) -> set[int]:
    async with gateway.client() as client:
        answer: Any = await client.ask(request, version)
    return set(errors(answer)) - {0}


def named(requests: list[tuple[ApiMessage, int]]) -> list[Any]:
    return [
        pytest.param(request, version, id=f"{type(request).__name__} {version}")
        for request, version in requests
    ]


@pytest.mark.parametrize(("request_", "version"), named(OF_GROUPS))
async def test_requests_about_a_group(
    gateway: RunningGateway, request_: ApiMessage, version: int
) -> None:
    groups = gateway.services.groups
    assert NOT_COORDINATOR not in await refusals(gateway, request_, version)
    await groups.detach(ALL)
    assert {NOT_COORDINATOR} == await refusals(gateway, request_, version)
    groups.shards.begin_loading(ALL)
    assert {LOADING} == await refusals(gateway, request_, version)


@pytest.mark.parametrize(("request_", "version"), named(OF_TRANSACTIONS))
async def test_requests_about_a_transactional_id(
    gateway: RunningGateway, request_: ApiMessage, version: int
) -> None:
    transactions = gateway.services.transactions
    await transactions.detach(ALL)
    assert {NOT_COORDINATOR} == await refusals(gateway, request_, version)
    transactions.shards.begin_loading(ALL)
    assert {LOADING} == await refusals(gateway, request_, version)
    transactions.shards.detach(ALL)
    await transactions.attach(ALL)
    assert NOT_COORDINATOR not in await refusals(gateway, request_, version)


async def test_heartbeats_of_classic_members_are_answered_while_their_group_is_loaded(
    gateway: RunningGateway,
) -> None:
    """Its sessions begin when it is loaded; an error would make the members rejoin for nothing."""
    groups, heartbeat = gateway.services.groups, HeartbeatRequest(group_id="g", member_id="m")
    await groups.detach(ALL)
    assert {NOT_COORDINATOR} == await refusals(gateway, heartbeat, 4)
    groups.shards.begin_loading(ALL)
    assert set() == await refusals(gateway, heartbeat, 4)


async def test_offset_fetch_of_version_1_names_each_partition(gateway: RunningGateway) -> None:
    await gateway.services.groups.detach(ALL)
    async with gateway.client() as client:
        answer = await client.ask(OffsetFetchRequest(group_id="g", topics=[FETCHED]), 1)
    (topic,) = answer.topics
    assert [(0, -1, NOT_COORDINATOR), (1, -1, NOT_COORDINATOR)] == [
        (one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions
    ]


async def test_lists_have_what_is_attached_and_wait_for_what_is_being_loaded(
    gateway: RunningGateway,
) -> None:
    async def listed(client: WireClient) -> list[tuple[int, int]]:
        groups = await client.ask(ListGroupsRequest(), 5)
        transactions = await client.ask(ListTransactionsRequest(), 2)
        return [
            (groups.error_code, len(groups.groups)),
            (transactions.error_code, len(transactions.transaction_states)),
        ]

    coordinators = gateway.services.groups, gateway.services.transactions
    async with gateway.client() as client:
        assert [(0, 1), (0, 1)] == await listed(client)
        for each in coordinators:
            await each.detach(ALL)
        assert [(0, 0), (0, 0)] == await listed(client)
        for each in coordinators:
            each.shards.begin_loading([0])
        assert [(LOADING, 0), (LOADING, 0)] == await listed(client)


@pytest.mark.parametrize("version", [9, 11, 12])
async def test_produce_asks_again_when_its_transaction_cannot_be_verified(
    gateway: RunningGateway, version: int
) -> None:
    transactions = gateway.services.transactions
    async with gateway.client() as client:
        producer = TxnClient(client, "y")
        assert 0 == await producer.init()
        assert {0: 0} == await producer.add(0)
        await transactions.detach(ALL)
        assert NOT_ENOUGH_REPLICAS == await producer.produce(version=version)
        transactions.shards.begin_loading(ALL)
        assert NOT_ENOUGH_REPLICAS == await producer.produce(version=version)
        transactions.shards.detach(ALL)
        await transactions.attach(ALL)
        assert 0 == await producer.produce(version=version)


@pytest.mark.parametrize("version", [3, 5])
async def test_txn_offset_commit_asks_again_when_its_transaction_is_coordinated_elsewhere(
    gateway: RunningGateway, version: int
) -> None:
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[TXN_COMMITTED])
    await gateway.services.transactions.detach(ALL)
    assert {LOADING} == await refusals(gateway, request, version)

"""Words for what a member of a classic group says, over a connection of its own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from kledger.gateway.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kledger.gateway.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kledger.gateway.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from kledger.gateway.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kledger.gateway.wire.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.gateway.running import RunningGateway, until
from tests.gateway.wire_client import WireClient

JOIN_V = 5
SYNC_V = 3
HEARTBEAT_V = 3
LEAVE_V = 3
COMMIT_V = 7
FETCH_V = 7
SESSION_MS = 10_000
REBALANCE_MS = 60_000
MEMBER_ID_REQUIRED = 79


class GroupClient:
    """A member of group `g`: its id and generation, by its last response."""

    def __init__(self, wire: WireClient, *, instance_id: str | None = None) -> None:
        self.wire = wire
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"),)

    def send_join(self, version: int = JOIN_V, **changes: Any) -> None:
        """Ask to join without waiting."""
        request = JoinGroupRequest(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data)
                       for name, data in self.protocols],
        )  # fmt: skip
        for name, value in changes.items():
            setattr(request, name, value)
        self.wire.send(request, version)

    async def joined(self) -> JoinGroupResponse:
        """Take the answer to a join."""
        response: JoinGroupResponse = await self.wire.receive()
        if response.error_code in {0, MEMBER_ID_REQUIRED}:
            self.member_id = response.member_id
        if not response.error_code:
            self.generation = response.generation_id
        return response

    async def join(self, version: int = JOIN_V, **changes: Any) -> JoinGroupResponse:
        """Join and wait, twice if an id is given out first."""
        self.send_join(version, **changes)
        response = await self.joined()
        if response.error_code == MEMBER_ID_REQUIRED:
            self.send_join(version, **changes)
            response = await self.joined()
        return response

    async def ask_id(self) -> None:
        """Get an id, and do not join yet."""
        self.send_join()
        assert MEMBER_ID_REQUIRED == (await self.joined()).error_code

    def send_sync(self, *members: "GroupClient", version: int = SYNC_V, **changes: Any) -> None:
        """Ask for the assignment; the leader names the members, each gets its id as assignment."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=one.member_id, assignment=one.member_id.encode()
                )
                for one in members
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        self.wire.send(request, version)

    async def sync(
        self, *members: "GroupClient", version: int = SYNC_V, **changes: Any
    ) -> SyncGroupResponse:
        """Ask for the assignment and wait."""
        self.send_sync(*members, version=version, **changes)
        response: SyncGroupResponse = await self.wire.receive()
        return response

    def send_heartbeat(self, generation: int | None = None) -> None:
        """Say hello without waiting."""
        self.wire.send(
            HeartbeatRequest(
                group_id="g",
                member_id=self.member_id,
                generation_id=self.generation if generation is None else generation,
                group_instance_id=self.instance_id,
            ),
            HEARTBEAT_V,
        )

    async def heartbeat(self, generation: int | None = None) -> int:
        """Say hello; return the error."""
        self.send_heartbeat(generation)
        response = await self.wire.receive()
        code: int = response.error_code
        return code

    async def leave(self) -> list[int]:
        """Leave; return the error of each member that leaves."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        response = await self.wire.ask(LeaveGroupRequest(group_id="g", members=[identity]), LEAVE_V)
        return [one.error_code for one in response.members]

    async def commit(self, offset: int = 1, **changes: Any) -> int:
        """Commit partition 0 of topic `t`; return the error."""
        partition = OffsetCommitRequestPartition(
            committed_offset=offset, committed_metadata=changes.pop("metadata", "")
        )
        topic = OffsetCommitRequestTopic(name=changes.pop("topic", "t"), partitions=[partition])
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[topic],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        response = await self.wire.ask(request, COMMIT_V)
        code: int = response.topics[0].partitions[0].error_code
        return code

    async def committed(self) -> int:
        """Return the committed offset of partition 0 of topic `t`."""
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        response = await self.wire.ask(OffsetFetchRequest(group_id="g", topics=[topic]), FETCH_V)
        offset: int = response.topics[0].partitions[0].committed_offset
        return offset


@asynccontextmanager
async def clients(
    gateway: RunningGateway, count: int, *, instance_ids: tuple[str, ...] = ()
) -> AsyncIterator[list[GroupClient]]:
    """Connect as many clients; the first ones get the instance ids."""
    async with AsyncExitStack() as stack:
        yield [
            GroupClient(
                await stack.enter_async_context(gateway.client()),
                instance_id=instance_ids[number] if number < len(instance_ids) else None,
            )
            for number in range(count)
        ]


async def waiting(gateway: RunningGateway, count: int) -> None:
    """Wait until so many joins and syncs wait for others."""
    await until(lambda: gateway.services.groups.waiting_count == count)


async def make_stable(gateway: RunningGateway, first: GroupClient, *others: GroupClient) -> None:
    """Bring the clients into one stable generation, which `first` leads."""
    await first.join()
    for other in others:
        if other.instance_id is None:
            await other.ask_id()
        other.send_join()
    await waiting(gateway, len(others))
    if others:
        await first.join()
        for other in others:
            await other.joined()
    for other in others:
        other.send_sync()
    await waiting(gateway, len(others))
    assert 0 == (await first.sync(first, *others)).error_code
    for other in others:
        assert other.member_id.encode() == (await other.wire.receive()).assignment

"""Group handlers over a coordinator, a registry and a store in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kledger.gateway.config import GatewayConfig
from kledger.gateway.handlers import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k14_sync_group,
)
from kledger.gateway.opening import open_services
from kledger.gateway.peer import Peer
from kledger.gateway.request_context import RequestContext
from kledger.gateway.services import Services
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
from kledger.gateway.wire.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.testing import ManualClock
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import Topic, TopicRegistry


class GroupBench:
    """Everything that the handlers need, and words for common requests."""

    def __init__(self, services: Services, clock: ManualClock) -> None:
        self.services = services
        self.clock = clock
        self.topic: Topic

    def context(self, version: int) -> RequestContext:
        return RequestContext(
            services=self.services,
            version=version,
            client_id="client",
            connection_id=1,
            peer=Peer("10.0.0.1"),
        )

    async def join(self, version: int = 9, **changes: Any) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"r")],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return await k11_join_group.handle(self.context(version), request)

    async def stable(self, **changes: Any) -> str:
        """Make a stable group of one member and return its id."""
        first = await self.join(**changes)
        joined = first
        if first.generation_id < 0:
            joined = await self.join(member_id=first.member_id, **changes)
        await k14_sync_group.handle(
            self.context(5),
            SyncGroupRequest(
                group_id=changes.get("group_id", "g"),
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
                ],
            ),
        )
        return joined.member_id

    async def commit(self, offset: int = 7, *, version: int = 9, **changes: Any) -> int:
        """Commit one partition and return its error."""
        partition = OffsetCommitRequestPartition(
            partition_index=changes.pop("partition", 0),
            committed_offset=offset,
            committed_leader_epoch=3,
            committed_metadata=changes.pop("metadata", "note"),
        )
        topic = OffsetCommitRequestTopic(
            name=changes.pop("topic", "t"),
            topic_id=changes.pop("topic_id", self.topic.id),
            partitions=[partition],
        )
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        for name, value in changes.items():
            setattr(request, name, value)
        response = await k08_offset_commit.handle(self.context(version), request)
        return response.topics[0].partitions[0].error_code

    def fetched(self, topic: str = "t", partition: int = 0, group_id: str = "g") -> int:
        """Return the committed offset of one partition as version 7 answers it."""
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
        )
        response = k09_offset_fetch.handle(self.context(7), request)
        return response.topics[0].partitions[0].committed_offset


@asynccontextmanager
async def group_bench(**settings: int) -> AsyncIterator[GroupBench]:
    """Serve groups without initial delay, with topic `t` of two partitions."""
    config = GatewayConfig(
        group_initial_rebalance_delay_ms=0, advertised_host="kafka.test", advertised_port=9092
    )
    clock, supervisor = ManualClock(1_000_000), Supervisor()
    async with LedgerStore.open(None, config=StoreConfig(durability="os"), clock=clock) as store:
        timers = Timers(clock, supervisor)
        entropy = SeededEntropy(1)
        registry = await TopicRegistry.open(store, None, clock, entropy)
        for name, value in settings.items():
            setattr(config, name, value)
        services = open_services(
            store,
            registry,
            config=config,
            clock=clock,
            timers=timers,
            supervisor=supervisor,
            entropy=entropy,
        )
        bench = GroupBench(services, clock)
        bench.topic = await registry.create("t", partitions=2)
        try:
            yield bench
        finally:
            services.close()
            await supervisor.close()

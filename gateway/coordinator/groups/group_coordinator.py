"""Groups: the coordinator of classic groups, as handlers see it.

Rule: looks up the group, lets its state decide, performs the effects. Membership lives in memory
and is stored once per generation; heartbeats write nothing.
Must not know: API versions, message classes, committed offsets beyond who may touch them
(`group_offsets` does the rest).
"""

from collections.abc import Iterable
from functools import partial
from typing import Final, cast

from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.consumer import classic_in_consumer_state
from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer_messages import TopicCatalog
from kledger.gateway.coordinator.effects import Effect
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import (
    GroupDescription,
    GroupListing,
    JoinCommand,
    JoinResult,
    LeavingMember,
    RequestingMember,
    SyncCommand,
    SyncResult,
)
from kledger.gateway.coordinator.groups.consumer_groups import ConsumerGroups
from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
from kledger.gateway.coordinator.groups.group_table import GroupTable, HostedGroup
from kledger.gateway.coordinator.runtime import CoordinatorRuntime
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.offsets import OffsetStore
from kledger.runtime.clock import Clock
from kledger.runtime.deferred import Deferred
from kledger.runtime.entropy import Entropy
from kledger.runtime.timers import Timers

CLOSING: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_SYNC_CLOSING: Final = SyncResult(error=CLOSING)


class GroupCoordinator:
    """All groups of this node.

    Attributes:
        config: the settings in force.
        offsets: commits, reads and deletions of offsets, and the deletion of groups.
        consumers: the groups of the consumer protocol.
    """

    def __init__(
        self,
        *,
        table: GroupTable,
        runtime: CoordinatorRuntime,
        offsets: GroupOffsets,
        consumers: ConsumerGroups,
        catalog: TopicCatalog,
        config: GroupConfig,
        entropy: Entropy,
    ) -> None:
        self.config = config
        self.offsets = offsets
        self.consumers = consumers
        self._table = table
        self._catalog = catalog
        self._runtime = runtime
        self._entropy = entropy
        self._is_closed = False

    @classmethod
    def open(
        cls,
        store: LedgerStore,
        *,
        catalog: TopicCatalog,
        config: GroupConfig,
        clock: Clock,
        timers: Timers,
        entropy: Entropy,
    ) -> "GroupCoordinator":
        """Load groups and offsets from the store and begin to serve them."""
        runtime = CoordinatorRuntime(store, clock, timers)
        offset_store = OffsetStore.open(store)
        table = GroupTable(config, clock)
        table.load(store, offset_store, runtime)
        runtime.on_fault = partial(table.reload, store=store, runtime=runtime)
        offsets = GroupOffsets(
            table=table,
            runtime=runtime,
            store=offset_store,
            config=config,
            clock=clock,
            timers=timers,
        )
        offsets.start_expiry()
        consumers = ConsumerGroups(
            table=table,
            runtime=runtime,
            catalog=catalog,
            config=config,
            entropy=entropy,
        )
        return cls(
            table=table,
            runtime=runtime,
            offsets=offsets,
            consumers=consumers,
            catalog=catalog,
            config=config,
            entropy=entropy,
        )

    def close(self) -> None:
        """Answer who waits, stop every timer. May be repeated."""
        self._is_closed = True
        self.consumers.close()
        self.offsets.stop_expiry()
        self._runtime.refuse_all()
        for hosted in self._table:
            self._runtime.retire(hosted)

    @property
    def group_count(self) -> int:
        """How many groups exist."""
        return len(self._table)

    @property
    def waiting_count(self) -> int:
        """How many joins and syncs wait for others."""
        return self._runtime.waiting_count

    def join(self, command: JoinCommand) -> Deferred[JoinResult]:
        """Join a group; the answer is there when the generation begins, or at once with an error.

        The command's `waiter` and `new_member_id` are filled in here.
        """
        error = self._check_join(command)
        if error is not ErrorCode.NONE:
            return Deferred.resolved(JoinResult(error=error, member_id=command.member_id))
        refused = JoinResult(error=CLOSING, member_id=command.member_id)
        command.new_member_id = self._new_member_id(command)
        hosted = self._group_to_join(command.group_id)
        command.waiter = self._runtime.register(refused)
        group = hosted.group

        def request(now_ms: int) -> list[Effect]:
            if isinstance(group, ConsumerGroup):
                return classic_in_consumer_state.join(group, command, self._catalog, now_ms)
            return group.join(command, now_ms)

        return cast("Deferred[JoinResult]", self._runtime.run(hosted, command.waiter, request))

    def sync(self, command: SyncCommand) -> Deferred[SyncResult]:
        """Ask for an assignment; it is there when the leader's is durable, or at once.

        The command's `waiter` is filled in here.
        """
        if self._is_closed:
            return Deferred.resolved(SyncResult(error=CLOSING))
        if not command.group_id:
            return Deferred.resolved(SyncResult(error=ErrorCode.INVALID_GROUP_ID))
        hosted = self.consumers.find(command.group_id)
        if hosted is None:
            return Deferred.resolved(SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))
        command.waiter = self._runtime.register(_SYNC_CLOSING)
        group = hosted.group

        def request(now_ms: int) -> list[Effect]:
            if isinstance(group, ConsumerGroup):
                return classic_in_consumer_state.sync(group, command, self._catalog, now_ms)
            return group.sync(command, now_ms)

        return cast("Deferred[SyncResult]", self._runtime.run(hosted, command.waiter, request))

    def heartbeat(self, group_id: str, sender: RequestingMember) -> ErrorCode:
        """Keep a member alive."""
        if self._is_closed:
            return CLOSING
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        hosted = self.consumers.find(group_id)
        if hosted is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group = hosted.group

        def request(now_ms: int) -> tuple[ErrorCode, Iterable[Effect]]:
            if isinstance(group, ClassicGroup):
                return group.heartbeat(sender, now_ms), ()
            return classic_in_consumer_state.heartbeat(group, sender, now_ms)

        return self._runtime.decide(hosted, request, CLOSING)

    def leave(
        self, group_id: str, leaving: tuple[LeavingMember, ...]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members; return the error of the request and one for each leaver."""
        if self._is_closed:
            return CLOSING, []
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        hosted = self.consumers.find(group_id)
        if hosted is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        group = hosted.group
        refusal: tuple[ErrorCode, list[ErrorCode]] = CLOSING, []

        def request(
            now_ms: int,
        ) -> tuple[tuple[ErrorCode, list[ErrorCode]], Iterable[Effect]]:
            if isinstance(group, ConsumerGroup):
                errors, effects = classic_in_consumer_state.leave(group, leaving, now_ms)
            else:
                errors, effects = group.leave(leaving, now_ms)
            return (ErrorCode.NONE, errors), effects

        return self._runtime.decide(hosted, request, refusal)

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return what tools may see of a classic group; None when there is none."""
        hosted = self.consumers.find(group_id)
        if hosted is None or not isinstance(hosted.group, ClassicGroup):
            return None
        return hosted.group.describe()

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Return the groups in one of the states and of one of the types; empty means any."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        listings = (
            GroupListing(
                hosted.group.group_id,
                hosted.group.protocol_type or "",
                hosted.group.state.value,
                hosted.group.kind,
            )
            for hosted in map(self.consumers.find, [each.group.group_id for each in self._table])
            if hosted is not None
        )
        return [
            listing
            for listing in listings
            if (not wanted_states or listing.state.lower() in wanted_states)
            and (not wanted_types or listing.group_type.lower() in wanted_types)
        ]

    def _check_join(self, command: JoinCommand) -> ErrorCode:
        """Check what can be refused without looking at the group's members."""
        config = self.config
        if self._is_closed:
            return CLOSING
        if not command.group_id or len(command.group_id.encode()) > config.group_id_bytes_max:
            return ErrorCode.INVALID_GROUP_ID
        timeout_ms = command.session_timeout_ms
        if not (
            config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        size = sum(len(name) + len(metadata) for name, metadata in command.protocols)
        if size > config.member_metadata_bytes_max:
            return ErrorCode.INVALID_REQUEST
        hosted = self._table.get(command.group_id)
        if hosted is not None:
            is_other = isinstance(hosted.group, ConsumerGroup) and not hosted.group.is_empty
            is_refused = is_other and config.consumer_migration_policy == "disabled"
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_refused else ErrorCode.NONE
        if command.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.POLICY_VIOLATION if self._table.is_full else ErrorCode.NONE

    def _group_to_join(self, group_id: str) -> HostedGroup:
        """Return a group to join; an empty one of the consumer protocol makes room for a new one.

        Its row is replaced by the first generation.
        """
        hosted = self.consumers.find(group_id) or self._table.ensure(group_id)
        if isinstance(hosted.group, ConsumerGroup) and hosted.group.is_empty:
            hosted = self._table.new_hosted(ClassicGroup(group_id, self.config))
            self._table.put(hosted, self._runtime)
        return hosted

    def _new_member_id(self, command: JoinCommand) -> str:
        """Return an id that begins with the name under which people know the client."""
        if command.member_id:
            return ""
        return f"{command.instance_id or command.client_id}-{self._entropy.uuid4()}"

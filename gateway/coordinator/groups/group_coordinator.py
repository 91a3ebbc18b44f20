"""Group coordinator: groups of both protocols, as handlers see them.

Rule: finds the group and lets it decide; the table performs what it decides. Membership is stored
when it changes; heartbeats that change nothing write nothing. A consumer group exists from the
moment in which a member joins, and replaces an empty classic group of its id.
Must not know: API versions, message classes, committed offsets (`group_offsets` has those).
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TypeAlias, cast

from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup, ClassicGroupState
from kledger.gateway.coordinator.consumer import classic_in_consumer_state
from kledger.gateway.coordinator.consumer.consumer_group_state import (
    ConsumerGroup,
    ConsumerGroupDescription,
    new_record,
)
from kledger.gateway.coordinator.consumer.consumer_protocol_plan import CONSUMER_PROTOCOL
from kledger.gateway.coordinator.consumer.heartbeat_plan import heartbeat_error
from kledger.gateway.coordinator.consumer.migration_state import downgraded, upgraded
from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    HeartbeatCommand,
    HeartbeatResult,
    TopicCatalog,
)
from kledger.gateway.coordinator.coordinator_shards_state import (
    LOADING,
    CoordinatedShards,
    CoordinatorShards,
)
from kledger.gateway.coordinator.effects import Effect, Respond
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
from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
from kledger.gateway.coordinator.groups.group_shards import GroupShards
from kledger.gateway.coordinator.groups.group_table import (
    UNAVAILABLE,
    AnyGroup,
    GroupTable,
    HostedGroup,
)
from kledger.gateway.coordinator.shard_counts import load_shard_count
from kledger.gateway.coordinator.shard_loader import ShardLoader
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.runtime.clock import Clock
from kledger.runtime.deferred import Deferred
from kledger.runtime.entropy import Entropy
from kledger.runtime.timers import Timers

LeaveResult: TypeAlias = tuple[ErrorCode, list[ErrorCode]]
"""The error of a request to leave, and one for each leaving member."""

Found: TypeAlias = HostedGroup | HeartbeatResult
"""The group of a heartbeat, or an error."""


class GroupCoordinator:
    """All groups of this node.

    Attributes:
        config: the settings in force.
        offsets: commits, reads and deletions of offsets, and the deletion of groups.
        shards: of the groups, for reading; `attach` and `detach` change them.
    """

    def __init__(
        self,
        *,
        table: GroupTable,
        offsets: GroupOffsets,
        loader: ShardLoader,
        catalog: TopicCatalog,
        config: GroupConfig,
        entropy: Entropy,
    ) -> None:
        self.config = config
        self.offsets = offsets
        self.shards = table.shards
        self._loader = loader
        self._table = table
        self._catalog = catalog
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
        coordinated: CoordinatedShards = range,
    ) -> "GroupCoordinator":
        """Load groups and offsets from the store and begin to serve them.

        Args:
            store: has them.
            catalog: of the topics.
            config: of groups.
            clock: the time of everything.
            timers: likewise.
            entropy: makes ids.
            coordinated: returns which of so many shards this broker coordinates.

        Raises:
            UnreadableRow: one of them cannot be read.
        """
        shards = CoordinatorShards(load_shard_count(store, "groups"))
        table = GroupTable(store, shards, config, clock, timers)
        offsets = GroupOffsets(
            table=table,
            store=store,
            config=config,
            clock=clock,
            timers=timers,
            coordinated=coordinated,
        )
        loader = ShardLoader(shards, store, GroupShards(store, table, offsets))
        loader.attach_at_start(coordinated(shards.count))
        offsets.start_expiry()
        return cls(
            table=table,
            offsets=offsets,
            loader=loader,
            catalog=catalog,
            config=config,
            entropy=entropy,
        )

    def close(self) -> None:
        """Reject waiting and later requests, stop every timer. May be repeated."""
        self._is_closed = True
        self._loader.close()
        self.offsets.stop_expiry()
        self._table.close()

    # Shards.

    async def attach(self, numbers: Collection[int]) -> None:
        """Load shards and serve their groups; see `ShardLoader.attach`.

        The sessions of their members begin anew, in the same generation.
        """
        await self._loader.attach(numbers)

    async def detach(self, numbers: Collection[int]) -> None:
        """Refuse shards from now on, and forget them; see `ShardLoader.detach`."""
        await self._loader.detach(numbers)

    def error(self, group_id: str) -> ErrorCode:
        """Return why requests for a group are refused; NONE if its shard is attached."""
        return self._table.error(group_id)

    @property
    def group_count(self) -> int:
        """How many groups exist."""
        return len(self._table)

    @property
    def waiting_count(self) -> int:
        """How many requests wait for other members or for a write."""
        return self._table.waiting_count

    # Members of the classic protocol, in groups of either.

    def join(self, command: JoinCommand) -> Deferred[JoinResult]:
        """Join a group; resolved when the generation begins, or at once with an error.

        The command's `waiter` and `new_member_id` are filled in here.
        """

        def refused(error: ErrorCode) -> JoinResult:
            return JoinResult(error=error, member_id=command.member_id)

        error = self._check_join(command)
        if error is not ErrorCode.NONE:
            return Deferred.resolved(refused(error))
        command.new_member_id = self._new_member_id(command)
        hosted = self._group_to_join(command.group_id)
        command.waiter = self._table.register(refused)
        group = hosted.group

        def request(now_ms: int) -> list[Effect]:
            if isinstance(group, ConsumerGroup):
                return classic_in_consumer_state.join(group, command, self._catalog, now_ms)
            return group.join(command, now_ms)

        return cast("Deferred[JoinResult]", self._table.run(hosted, command.waiter, request))

    def sync(self, command: SyncCommand) -> Deferred[SyncResult]:
        """Ask for an assignment; resolved when the leader's is durable, or at once.

        The command's `waiter` is filled in here.
        """
        if self._is_closed:
            return Deferred.resolved(_sync_refused(UNAVAILABLE))
        if not command.group_id:
            return Deferred.resolved(_sync_refused(ErrorCode.INVALID_GROUP_ID))
        hosted = self._find(command.group_id)
        if hosted is None:
            error = self._table.error(command.group_id) or ErrorCode.UNKNOWN_MEMBER_ID
            return Deferred.resolved(_sync_refused(error))
        command.waiter = self._table.register(_sync_refused)
        group = hosted.group

        def request(now_ms: int) -> list[Effect]:
            if isinstance(group, ConsumerGroup):
                return classic_in_consumer_state.sync(group, command, self._catalog, now_ms)
            return group.sync(command, now_ms)

        return cast("Deferred[SyncResult]", self._table.run(hosted, command.waiter, request))

    def heartbeat(self, group_id: str, sender: RequestingMember) -> ErrorCode:
        """Renew the session of a member."""
        if self._is_closed:
            return UNAVAILABLE
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        hosted = self._find(group_id)
        if hosted is None:
            error = self._table.error(group_id)
            # The session begins anew when its shard is loaded, so the member may go on.
            return ErrorCode.NONE if error is LOADING else error or ErrorCode.UNKNOWN_MEMBER_ID
        group = hosted.group

        def request(now_ms: int) -> tuple[ErrorCode, Iterable[Effect]]:
            if isinstance(group, ClassicGroup):
                return group.heartbeat(sender, now_ms), ()
            return classic_in_consumer_state.heartbeat(group, sender, now_ms)

        return self._table.decide(hosted, request, UNAVAILABLE)

    def leave(self, group_id: str, leaving: tuple[LeavingMember, ...]) -> Deferred[LeaveResult]:
        """Remove members; resolved when that is durable, in groups of which it is stored."""
        if self._is_closed:
            return Deferred.resolved(_leave_refused(UNAVAILABLE))
        if not group_id:
            return Deferred.resolved(_leave_refused(ErrorCode.INVALID_GROUP_ID))
        hosted = self._find(group_id)
        if hosted is None and (error := self._table.error(group_id)):
            return Deferred.resolved(_leave_refused(error))
        if hosted is None:
            unknown = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
            return Deferred.resolved((ErrorCode.NONE, unknown))
        waiter = self._table.register(_leave_refused)
        group = hosted.group

        def request(now_ms: int) -> list[Effect]:
            if isinstance(group, ConsumerGroup):
                return classic_in_consumer_state.leave(group, leaving, waiter, now_ms)
            errors, effects = group.leave(leaving, now_ms)
            return [*effects, Respond(waiter, (ErrorCode.NONE, errors))]

        return cast("Deferred[LeaveResult]", self._table.run(hosted, waiter, request))

    def _check_join(self, command: JoinCommand) -> ErrorCode:
        """Check everything but the members of the group."""
        config = self.config
        if self._is_closed:
            return UNAVAILABLE
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
            is_rejected = is_other and config.consumer_migration_policy == "disabled"
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_rejected else ErrorCode.NONE
        if error := self._table.error(command.group_id):
            return error
        if command.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.POLICY_VIOLATION if self._table.is_full else ErrorCode.NONE

    def _group_to_join(self, group_id: str) -> HostedGroup:
        """Return a group to join; a new classic one replaces an empty one of the consumer protocol.

        The first generation replaces its row.
        """
        hosted = self._find(group_id) or self._table.ensure(group_id)
        if isinstance(hosted.group, ConsumerGroup) and hosted.group.is_empty:
            hosted = self._table.classic(ClassicGroup(group_id, self.config))
            self._table.put(hosted)
        return hosted

    def _new_member_id(self, command: JoinCommand) -> str:
        """Return an id that begins with the instance or client id, as in Kafka's logs."""
        if command.member_id:
            return ""
        return f"{command.instance_id or command.client_id}-{self._entropy.uuid4()}"

    # Members of the consumer protocol.

    async def consumer_heartbeat(self, command: HeartbeatCommand) -> HeartbeatResult:
        """Let a member join, stay or leave; returns when the change is durable.

        The command's `waiter` is filled in here.
        """
        if self._is_closed:
            return _heartbeat_refused(UNAVAILABLE)
        rejected = heartbeat_error(
            command,
            assignors=self.config.consumer_assignors,
            bytes_max=self.config.member_metadata_bytes_max,
        )
        if rejected is not None:
            return rejected
        hosted = self._group_for_heartbeat(command)
        if isinstance(hosted, HeartbeatResult):
            return hosted
        group = hosted.group
        assert isinstance(group, ConsumerGroup), f"{group.group_id} is {group.kind}"
        waiter = self._table.register(_heartbeat_refused)
        command = replace(command, waiter=waiter)

        def request(now_ms: int) -> list[Effect]:
            effects = group.heartbeat(command, self._catalog, now_ms)
            if command.member_id in group.members and self._table.get(group.group_id) is not hosted:
                self._table.put(hosted)
            return effects

        result = await self._table.run(hosted, waiter, request)
        assert isinstance(result, HeartbeatResult), f"not the answer to a heartbeat: {result!r}"
        return result

    def new_consumer_member_id(self) -> str:
        """Return an id for a member of the consumer protocol that joins without one."""
        return str(self._entropy.uuid4())

    def _group_for_heartbeat(self, command: HeartbeatCommand) -> Found:
        """Return the group of a heartbeat.

        A new group, or an upgraded classic one, is not in the table before a member has joined it.
        """
        hosted = self._find(command.group_id)
        if hosted is not None and not hosted.is_classic:
            return hosted
        if error := self._table.error(command.group_id):
            return _heartbeat_refused(error)
        if command.epoch != JOIN_EPOCH:
            return _group_not_found(command.group_id)
        if hosted is not None and not hosted.group.is_empty:
            return self._upgraded(hosted, hosted.group)
        if len(command.group_id.encode()) > self.config.group_id_bytes_max:
            return HeartbeatResult(
                error=ErrorCode.INVALID_GROUP_ID, message="the group id is too long"
            )
        if hosted is None and self._table.is_full:
            return HeartbeatResult(
                error=ErrorCode.POLICY_VIOLATION, message="there are too many groups"
            )
        return self._table.consumer(new_record(command.group_id, self.config))

    # Tools.

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return what tools may see of a classic group; None if there is none."""
        hosted = self._find(group_id)
        if hosted is None or not isinstance(hosted.group, ClassicGroup):
            return None
        return hosted.group.describe()

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription | None:
        """Return what tools may see of a group of the consumer protocol; None if there is none."""
        hosted = self._find(group_id)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup):
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
            for hosted in map(self._find, [each.group.group_id for each in self._table])
            if hosted is not None
        )
        return [
            listing
            for listing in listings
            if (not wanted_states or listing.state.lower() in wanted_states)
            and (not wanted_types or listing.group_type.lower() in wanted_types)
        ]

    # Groups that change their protocol.

    def _find(self, group_id: str) -> HostedGroup | None:
        """Return a group; one of the consumer protocol with only classic members is downgraded.

        A fault in the downgrade closes the group: its old host is returned, and the runtime
        rejects all requests to that.
        """
        hosted = self._table.get(group_id)
        if hosted is None or hosted.is_classic:
            return hosted
        group = hosted.group
        assert isinstance(group, ConsumerGroup), f"{group_id} is {group.kind}"
        if not (group.is_all_classic and self.config.may_downgrade):
            return hosted
        return self._downgraded(hosted, group)

    def _downgraded(self, before: HostedGroup, group: ConsumerGroup) -> HostedGroup:
        """Replace a group by its classic form; return `before` if that fails."""

        def replace_host(now_ms: int) -> tuple[tuple[HostedGroup, list[Effect]] | None, tuple[()]]:
            classic, effects = downgraded(group, self._catalog, now_ms)
            hosted = self._table.classic(classic)
            self._table.put(hosted)
            return (hosted, effects), ()

        replaced = self._table.decide(before, replace_host, None)
        if replaced is None:
            return before
        hosted, effects = replaced
        self._table.decide(hosted, lambda now_ms: (None, effects), None)
        return hosted

    def _upgraded(self, hosted: HostedGroup, group: AnyGroup) -> Found:
        """Return a classic group in its new form; a rebalance must complete first."""
        assert isinstance(group, ClassicGroup), f"{group.group_id} is {group.kind}"
        if not self.config.may_upgrade or group.protocol_type != CONSUMER_PROTOCOL:
            return _group_not_found(group.group_id)
        is_writing = self._table.is_writing(group.group_id)
        if group.state is not ClassicGroupState.STABLE or is_writing:
            return HeartbeatResult(
                error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message="the group rebalances; ask again"
            )

        def make_host(_: int) -> tuple[Found, tuple[()]]:
            record = upgraded(group, self._catalog)
            if record is None:
                return _group_not_found(group.group_id), ()
            return self._table.consumer(record), ()

        refusal: Found = _heartbeat_refused(UNAVAILABLE)
        return self._table.decide(hosted, make_host, refusal)


def _sync_refused(error: ErrorCode) -> SyncResult:
    return SyncResult(error=error)


def _leave_refused(error: ErrorCode) -> LeaveResult:
    return error, []


def _heartbeat_refused(error: ErrorCode) -> HeartbeatResult:
    return HeartbeatResult(error=error)


def _group_not_found(group_id: str) -> HeartbeatResult:
    return HeartbeatResult(
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        message=f"Group {group_id} not found: there is none of the consumer protocol.",
    )

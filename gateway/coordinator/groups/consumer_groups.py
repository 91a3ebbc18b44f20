"""Consumer groups: the coordinator of groups of the consumer protocol, as handlers see it.

Rule: looks up the group, lets its state decide, performs the effects. A group exists from the
moment in which a member joins; a classic group without members makes room for it.
Must not know: API versions, message classes, committed offsets.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup, ClassicGroupState
from kledger.gateway.coordinator.consumer.consumer_group_state import (
    ConsumerGroup,
    ConsumerGroupDescription,
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
from kledger.gateway.coordinator.effects import Effect
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.groups.group_table import AnyGroup, GroupTable, HostedGroup
from kledger.gateway.coordinator.runtime import CoordinatorRuntime
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.runtime.entropy import Entropy

Found: TypeAlias = tuple[HostedGroup, Iterable[Effect]] | HeartbeatResult
"""The group of a heartbeat and what is to be done once a member has joined, or a refusal."""

CLOSING: Final = HeartbeatResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class ConsumerGroups:
    """All groups of the consumer protocol of this node."""

    def __init__(
        self,
        *,
        table: GroupTable,
        runtime: CoordinatorRuntime,
        catalog: TopicCatalog,
        config: GroupConfig,
        entropy: Entropy,
    ) -> None:
        self._table = table
        self._runtime = runtime
        self._catalog = catalog
        self._config = config
        self._entropy = entropy
        self._is_closed = False

    def close(self) -> None:
        """Refuse everything from now on."""
        self._is_closed = True

    async def heartbeat(self, command: HeartbeatCommand) -> HeartbeatResult:
        """Let a member join, stay or leave; returns when what that changes is durable.

        The command's `waiter` is filled in here.
        """
        if self._is_closed:
            return CLOSING
        refused = heartbeat_error(
            command,
            assignors=self._config.consumer_assignors,
            bytes_max=self._config.member_metadata_bytes_max,
        )
        if refused is not None:
            return refused
        found = self._group_for_heartbeat(command)
        if isinstance(found, HeartbeatResult):
            return found
        hosted, first_effects = found
        group = hosted.group
        assert isinstance(group, ConsumerGroup), f"{group.group_id} is {group.kind}"
        waiter = self._runtime.register(CLOSING)
        command = replace(command, waiter=waiter)

        def request(now_ms: int) -> list[Effect]:
            effects = group.heartbeat(command, self._catalog, now_ms)
            if command.member_id in group.roster and self._table.get(group.group_id) is not hosted:
                self._table.put(hosted, self._runtime)
                self._runtime.perform(hosted, first_effects)
            return effects

        result = await self._runtime.run(hosted, waiter, request)
        assert isinstance(result, HeartbeatResult), f"not the answer to a heartbeat: {result!r}"
        return result

    def new_member_id(self) -> str:
        """Return an id for a member whose request may come without one."""
        return str(self._entropy.uuid4())

    def describe(self, group_id: str) -> ConsumerGroupDescription | None:
        """Return what tools may see of a group; None when there is none of this protocol."""
        hosted = self.find(group_id)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup):
            return None
        return hosted.group.describe()

    def find(self, group_id: str) -> HostedGroup | None:
        """Return a group; one that only members of the classic protocol are left in is classic.

        A fault in making it classic closes the group: the host of before is returned, and the
        runtime refuses whatever is asked of that.
        """
        hosted = self._table.get(group_id)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup):
            return hosted
        if not (hosted.group.is_all_classic and self._config.may_downgrade):
            return hosted
        return self._downgraded(hosted, hosted.group)

    def _downgraded(self, before: HostedGroup, group: ConsumerGroup) -> HostedGroup:
        """Put a group into its classic form; return `before` if that fails."""

        def replace_host(now_ms: int) -> tuple[tuple[HostedGroup, list[Effect]] | None, tuple[()]]:
            classic, effects = downgraded(group, self._catalog, now_ms)
            hosted = self._table.new_hosted(classic)
            self._table.put(hosted, self._runtime)
            return (hosted, effects), ()

        replaced = self._runtime.decide(before, replace_host, None)
        if replaced is None:
            return before
        hosted, effects = replaced
        self._runtime.decide(hosted, lambda now_ms: (None, effects), None)
        return hosted

    def _group_for_heartbeat(self, command: HeartbeatCommand) -> Found:
        """Return the group of a heartbeat, and what is to be done when somebody has joined it.

        A new group, or a classic one in its new form, is not in the table before that.
        """
        hosted = self.find(command.group_id)
        if hosted is not None and isinstance(hosted.group, ConsumerGroup):
            return hosted, ()
        if command.epoch != JOIN_EPOCH:
            return _group_not_found(command.group_id)
        if hosted is not None and not hosted.group.is_empty:
            return self._upgraded(hosted, hosted.group)
        if len(command.group_id.encode()) > self._config.group_id_bytes_max:
            return HeartbeatResult(
                error=ErrorCode.INVALID_GROUP_ID, message="the group id is too long"
            )
        if hosted is None and self._table.is_full:
            return HeartbeatResult(
                error=ErrorCode.POLICY_VIOLATION, message="there are too many groups"
            )
        return self._table.new_hosted(ConsumerGroup(command.group_id, self._config)), ()

    def _upgraded(self, hosted: HostedGroup, group: AnyGroup) -> Found:
        """Return a classic group in its new form; one that rebalances has to end that first."""
        assert isinstance(group, ClassicGroup), f"{group.group_id} is {group.kind}"
        if not self._config.may_upgrade or group.protocol_type != CONSUMER_PROTOCOL:
            return _group_not_found(group.group_id)
        if group.state is not ClassicGroupState.STABLE or group.is_storing:
            return HeartbeatResult(
                error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message="the group rebalances; ask again"
            )

        def make_host(now_ms: int) -> tuple[Found, tuple[()]]:
            migrated = upgraded(group, self._catalog, now_ms)
            if migrated is None:
                return _group_not_found(group.group_id), ()
            return (self._table.new_hosted(migrated[0]), migrated[1]), ()

        refusal: Found = CLOSING
        return self._runtime.decide(hosted, make_host, refusal)


def _group_not_found(group_id: str) -> HeartbeatResult:
    return HeartbeatResult(
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        message=f"Group {group_id} not found: there is none of the consumer protocol.",
    )

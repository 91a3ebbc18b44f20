"""Consumer groups: the coordinator of groups of the consumer protocol, as handlers see it.

Rule: looks up the group, lets its state decide, performs the effects. A group exists from the
moment in which a member joins; a classic group without members makes room for it.
Must not know: API versions, message classes, committed offsets.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from kledger.gateway.coordinator import consumer_beat_state
from kledger.gateway.coordinator.consumer_beat_plan import refuse_beat
from kledger.gateway.coordinator.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    BeatCommand,
    BeatResult,
    ConsumerGroupDescription,
    TopicCatalog,
)
from kledger.gateway.coordinator.consumer_migration_state import downgraded, upgraded
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_state import ClassicGroup, GroupState
from kledger.gateway.coordinator.group_table import AnyGroup, GroupHost, GroupTable
from kledger.gateway.coordinator.outcome import Effect
from kledger.gateway.coordinator.runtime import CoordinatorRuntime
from kledger.gateway.coordinator.subscription_plan import CONSUMER_PROTOCOL
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.runtime.entropy import Entropy

Found: TypeAlias = tuple[GroupHost, Iterable[Effect]] | BeatResult
"""The group of a heartbeat and what is to be done once a member has joined, or a refusal."""

CLOSING: Final = BeatResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)


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

    async def heartbeat(self, command: BeatCommand) -> BeatResult:
        """Let a member join, stay or leave; returns when what that changes is durable.

        The command's `waiter` is filled in here.
        """
        if self._is_closed:
            return CLOSING
        refused = refuse_beat(
            command,
            assignors=self._config.consumer_assignors,
            bytes_max=self._config.member_metadata_bytes_max,
        )
        if refused is not None:
            return refused
        found = self._host(command)
        if isinstance(found, BeatResult):
            return found
        host, first_effects = found
        group = host.group
        assert isinstance(group, ConsumerGroup), f"{group.group_id} is {group.kind}"
        waiter = self._runtime.register(CLOSING)
        command = replace(command, waiter=waiter)

        def request(now_ms: int) -> list[Effect]:
            effects = consumer_beat_state.beat(group, command, self._catalog, now_ms)
            if command.member_id in group.roster and self._table.get(group.group_id) is not host:
                self._table.put(host, self._runtime)
                self._runtime.perform(host, first_effects)
            return effects

        result = await self._runtime.run(host, waiter, request)
        assert isinstance(result, BeatResult), f"not the answer to a heartbeat: {result!r}"
        return result

    def new_member_id(self) -> str:
        """Return an id for a member whose request may come without one."""
        return str(self._entropy.uuid4())

    def describe(self, group_id: str) -> ConsumerGroupDescription | None:
        """Return what tools may see of a group; None when there is none of this protocol."""
        host = self.find(group_id)
        if host is None or not isinstance(host.group, ConsumerGroup):
            return None
        return host.group.describe()

    def find(self, group_id: str) -> GroupHost | None:
        """Return a group; one that only members of the classic protocol are left in is classic.

        A fault in making it classic closes the group: the host of before is returned, and the
        runtime refuses whatever is asked of that.
        """
        host = self._table.get(group_id)
        if host is None or not isinstance(host.group, ConsumerGroup):
            return host
        if not (host.group.is_all_classic and self._config.may_downgrade):
            return host
        return self._downgraded(host, host.group)

    def _downgraded(self, before: GroupHost, group: ConsumerGroup) -> GroupHost:
        """Put a group into its classic form; return `before` if that fails."""

        def replace_host(now_ms: int) -> tuple[tuple[GroupHost, list[Effect]] | None, tuple[()]]:
            classic, effects = downgraded(group, self._catalog, now_ms)
            host = self._table.new_host(classic)
            self._table.put(host, self._runtime)
            return (host, effects), ()

        replaced = self._runtime.decide(before, replace_host, None)
        if replaced is None:
            return before
        host, effects = replaced
        self._runtime.decide(host, lambda now_ms: (None, effects), None)
        return host

    def _host(self, command: BeatCommand) -> Found:
        """Return the group of a heartbeat, and what is to be done when somebody has joined it.

        A new group, or a classic one in its new form, is not in the table before that.
        """
        host = self.find(command.group_id)
        if host is not None and isinstance(host.group, ConsumerGroup):
            return host, ()
        if command.epoch != JOIN_EPOCH:
            return _not_found(command.group_id)
        if host is not None and not host.group.is_empty:
            return self._upgraded(host, host.group)
        if len(command.group_id.encode()) > self._config.group_id_bytes_max:
            return BeatResult(error=ErrorCode.INVALID_GROUP_ID, message="the group id is too long")
        if host is None and self._table.is_full:
            return BeatResult(error=ErrorCode.POLICY_VIOLATION, message="there are too many groups")
        return self._table.new_host(ConsumerGroup(command.group_id, self._config)), ()

    def _upgraded(self, host: GroupHost, group: AnyGroup) -> Found:
        """Return a classic group in its new form; one that rebalances has to end that first."""
        assert isinstance(group, ClassicGroup), f"{group.group_id} is {group.kind}"
        if not self._config.may_upgrade or group.protocol_type != CONSUMER_PROTOCOL:
            return _not_found(group.group_id)
        if group.state is not GroupState.STABLE or group.writes:
            return BeatResult(
                error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message="the group rebalances; ask again"
            )

        def make_host(now_ms: int) -> tuple[Found, tuple[()]]:
            gone_over = upgraded(group, self._catalog, now_ms)
            if gone_over is None:
                return _not_found(group.group_id), ()
            return (self._table.new_host(gone_over[0]), gone_over[1]), ()

        refusal: Found = CLOSING
        return self._runtime.decide(host, make_host, refusal)


def _not_found(group_id: str) -> BeatResult:
    return BeatResult(
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        message=f"Group {group_id} not found: there is none of the consumer protocol.",
    )

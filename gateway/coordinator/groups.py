"""Groups: the coordinator of classic groups, as handlers see it.

Rule: looks up the group, lets its state decide, performs the effects. Membership lives in memory
and is stored once per generation; heartbeats write nothing.
Must not know: API versions, message classes, committed offsets beyond who may touch them
(`group_offsets` does the rest).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gateway.coordinator import join_state, sync_state
from gateway.coordinator.group_config import GroupConfig
from gateway.coordinator.group_messages import (
    GroupDescription,
    GroupListing,
    JoinCommand,
    JoinResult,
    Leaver,
    Sender,
    SyncCommand,
    SyncResult,
)
from gateway.coordinator.group_offsets import GroupOffsets
from gateway.coordinator.group_table import GroupTable
from gateway.coordinator.runtime import CoordinatorRuntime
from gateway.wire.error_codes import ErrorCode
from ledger import LedgerStore
from offsets import OffsetStore
from runtime.clock import Clock
from runtime.entropy import Entropy
from runtime.timers import Timers

CLOSING: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class GroupCoordinator:
    """All groups of this node.

    Attributes:
        config: the settings in force.
        offsets: commits, reads and deletions of offsets, and the deletion of groups.
    """

    def __init__(
        self,
        *,
        table: GroupTable,
        runtime: CoordinatorRuntime,
        offsets: GroupOffsets,
        config: GroupConfig,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.config = config
        self.offsets = offsets
        self._table = table
        self._runtime = runtime
        self._clock = clock
        self._entropy = entropy
        self._is_closed = False

    @classmethod
    def open(
        cls,
        store: LedgerStore,
        *,
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
        offsets = GroupOffsets(
            table=table,
            runtime=runtime,
            store=offset_store,
            config=config,
            clock=clock,
            timers=timers,
        )
        offsets.start_expiry()
        return cls(
            table=table,
            runtime=runtime,
            offsets=offsets,
            config=config,
            clock=clock,
            entropy=entropy,
        )

    def close(self) -> None:
        """Answer who waits, stop every timer. May be repeated."""
        self._is_closed = True
        self.offsets.stop_expiry()
        self._runtime.refuse_all()
        for host in self._table:
            self._runtime.retire(host)

    @property
    def group_count(self) -> int:
        """How many groups exist."""
        return len(self._table)

    @property
    def waiting_count(self) -> int:
        """How many joins and syncs wait for others."""
        return self._runtime.waiting_count

    async def join(self, command: JoinCommand) -> JoinResult:
        """Join a group; returns when the generation begins, or at once with an error.

        The command's `waiter` and `new_member_id` are filled in here.
        """
        error = self._check_join(command)
        if error is not ErrorCode.NONE:
            return JoinResult(error=error, member_id=command.member_id)
        waiter = self._runtime.register(JoinResult(error=CLOSING, member_id=command.member_id))
        command = replace(command, waiter=waiter, new_member_id=self._new_member_id(command))
        host = self._table.ensure(command.group_id)
        effects = join_state.join(host.group, command, self._clock.monotonic_ms())
        result = await self._runtime.run(host, waiter, effects)
        assert isinstance(result, JoinResult), f"not the answer to a join: {result!r}"
        return result

    async def sync(self, command: SyncCommand) -> SyncResult:
        """Ask for an assignment; returns when the leader's is durable, or at once.

        The command's `waiter` is filled in here.
        """
        if self._is_closed:
            return SyncResult(error=CLOSING)
        if not command.group_id:
            return SyncResult(error=ErrorCode.INVALID_GROUP_ID)
        host = self._table.get(command.group_id)
        if host is None:
            return SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID)
        waiter = self._runtime.register(SyncResult(error=CLOSING))
        command = replace(command, waiter=waiter)
        effects = sync_state.sync(host.group, command, self._clock.monotonic_ms())
        result = await self._runtime.run(host, waiter, effects)
        assert isinstance(result, SyncResult), f"not the answer to a sync: {result!r}"
        return result

    def heartbeat(self, group_id: str, sender: Sender) -> ErrorCode:
        """Keep a member alive."""
        if self._is_closed:
            return CLOSING
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        host = self._table.get(group_id)
        if host is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return host.group.heartbeat(sender, self._clock.monotonic_ms())

    def leave(
        self, group_id: str, leavers: tuple[Leaver, ...]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members; return the error of the request and one for each leaver."""
        if self._is_closed:
            return CLOSING, []
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        host = self._table.get(group_id)
        if host is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        errors, effects = host.group.leave(leavers, self._clock.monotonic_ms())
        self._runtime.perform(host, effects)
        return ErrorCode.NONE, errors

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return what tools may see of a group; None when there is none."""
        host = self._table.get(group_id)
        return None if host is None else host.group.describe()

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Return the groups in one of the states and of one of the types; empty means any."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        listings = (
            GroupListing(
                host.group.group_id, host.group.protocol_type or "", host.group.state.value
            )
            for host in self._table
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
        if self._table.get(command.group_id) is not None:
            return ErrorCode.NONE
        if command.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.POLICY_VIOLATION if self._table.is_full else ErrorCode.NONE

    def _new_member_id(self, command: JoinCommand) -> str:
        """Return an id that begins with the name under which people know the client."""
        if command.member_id:
            return ""
        return f"{command.instance_id or command.client_id}-{self._entropy.uuid4()}"

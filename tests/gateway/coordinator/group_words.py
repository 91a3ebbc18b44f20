"""A classic group with a hand-moved clock, so that tests read like conversations.

Names of members are their ids.
"""

from dataclasses import replace

from kledger.gateway.coordinator.classic.classic_group_record import ClassicGroupRecord
from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.effects import Effect
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import (
    JoinCommand,
    JoinResult,
    LeavingMember,
    Protocols,
    RequestingMember,
    SyncCommand,
    SyncResult,
)
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.state_words import StateWorld

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
CONFIG = GroupConfig()
NO_DELAY = GroupConfig(group_initial_rebalance_delay_ms=0)
RANGE: Protocols = (("range", b"r"),)


def join_command(member_id: str = "", **changes: object) -> JoinCommand:
    """Return an ordinary JoinGroup."""
    command = JoinCommand(
        group_id="g",
        member_id=member_id,
        instance_id=None,
        client_id="client",
        client_host="/10.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=RANGE,
    )
    return replace(command, **changes)  # type: ignore[arg-type]


def sync_command(member_id: str, generation: int, **changes: object) -> SyncCommand:
    """Return an ordinary SyncGroup."""
    command = SyncCommand(
        group_id="g",
        member_id=member_id,
        instance_id=None,
        generation=generation,
        protocol_type=None,
        protocol_name=None,
        assignments={},
    )
    return replace(command, **changes)  # type: ignore[arg-type]


class GroupWorld(StateWorld[ClassicGroupRecord]):
    """One classic group."""

    def __init__(self, config: GroupConfig = CONFIG, *, stores_at_once: bool = True) -> None:
        super().__init__(stores_at_once=stores_at_once)
        self.group = ClassicGroup("g", config)

    @property
    def hosted(self) -> ClassicGroup:
        return self.group

    def replay(self, record: ClassicGroupRecord) -> list[Effect]:
        return self.group.replay(record, self.now_ms)

    def write_failed(self, record: ClassicGroupRecord) -> list[Effect]:
        return self.group.write_failed(record, self.durable, self.now_ms)

    def refusal(self, result: object) -> JoinResult:
        return JoinResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @property
    def state(self) -> str:
        return self.group.state.value

    # Requests. Each returns its waiter.

    def new(self, name: str, **changes: object) -> int:
        """A member without an id joins and is given `name`."""
        return self.join("", new_member_id=name, **changes)

    def join(self, member_id: str, **changes: object) -> int:
        waiter = self.next_waiter()
        command = join_command(member_id, waiter=waiter, **changes)
        self.perform(self.group.join(command, self.now_ms))
        return waiter

    def sync(self, member_id: str, generation: int | None = None, **changes: object) -> int:
        waiter = self.next_waiter()
        if generation is None:
            generation = self.group.generation
        command = sync_command(member_id, generation, waiter=waiter, **changes)
        self.perform(self.group.sync(command, self.now_ms))
        return waiter

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        return self.group.heartbeat(self._sender(member_id, generation, instance_id), self.now_ms)

    def commit(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        sender = self._sender(member_id, generation, instance_id)
        return self.group.check_commit(sender, self.now_ms)

    def leave(self, *leaving: str | LeavingMember) -> list[ErrorCode]:
        asked = tuple(LeavingMember(each) if isinstance(each, str) else each for each in leaving)
        errors, effects = self.group.leave(asked, self.now_ms)
        self.perform(effects)
        return errors

    # The world.

    def live(self, ms: int, *alive: str, step_ms: int = 3_000) -> None:
        """Let time pass while some members send heartbeats."""
        for _ in range(ms // step_ms):
            self.advance(step_ms)
            for member_id in alive:
                self.heartbeat(member_id)

    def restart(self) -> "GroupWorld":
        """Return the world after a crash: what was durable, at the same time."""
        world = GroupWorld(self.group.config, stores_at_once=self.stores_at_once)
        world.now_ms = self.now_ms
        if self.durable is not None:
            world.durable = self.durable
            world.perform(world.replay(self.durable))
        return world

    # Situations.

    def completing(self, *names: str, **changes: object) -> dict[str, int]:
        """Bring members into a generation that awaits its assignment; the first leads."""
        waiters = {name: self.new(name, **changes) for name in names}
        self.advance(self.group.config.group_initial_rebalance_delay_ms * 2)
        assert self.group.state == "CompletingRebalance", self.group.state
        return waiters

    def stable(self, *names: str, **changes: object) -> dict[str, int]:
        """Bring members into a generation with an assignment: each gets its name in bytes."""
        waiters = self.completing(*names, **changes)
        self.finish_sync()
        return waiters

    def finish_sync(self) -> None:
        """All members ask for their assignment, followers first."""
        roster = self.group.roster
        for name in list(roster.members):
            if name != roster.leader_id:
                self.sync(name)
        assert roster.leader_id is not None
        self.sync(roster.leader_id, assignments={name: name.encode() for name in roster.members})
        assert self.group.state == "Stable", self.group.state

    def joined(self, waiter: int) -> JoinResult:
        result = self.answers[waiter]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, waiter: int) -> SyncResult:
        result = self.answers[waiter]
        assert isinstance(result, SyncResult)
        return result

    def error(self, waiter: int) -> ErrorCode:
        result = self.answers[waiter]
        assert isinstance(result, JoinResult | SyncResult)
        return result.error

    def _sender(
        self, member_id: str, generation: int | None, instance_id: str | None
    ) -> RequestingMember:
        if generation is None:
            generation = self.group.generation
        return RequestingMember(member_id, generation, instance_id)

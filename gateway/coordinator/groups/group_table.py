"""Group table: every group of this node with its timers, loaded from its rows.

Rule: the only list of groups. A group exists while it has members, a stored row or committed
offsets.
Must not know: what requests mean, which of them are allowed.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kledger.gateway.coordinator.classic import classic_group_record
from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.consumer import consumer_group_record
from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.effects import Effect, TimerKey
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.runtime import CoordinatorRuntime, HostedMachine
from kledger.ledger import LedgerStore, Row
from kledger.offsets import OffsetStore
from kledger.runtime.clock import Clock

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup


class GroupStateMachine:
    """A group of either protocol, as the runtime's `StateMachine`.

    Attributes:
        empty_since_ms: wall time at which the group was last stored without members, or None.
    """

    __slots__ = ("_clock", "empty_since_ms", "group")

    def __init__(self, group: AnyGroup, clock: Clock, empty_since_ms: int | None = None) -> None:
        self.group = group
        self.empty_since_ms = empty_since_ms
        self._clock = clock

    def timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        """Act on a timer."""
        return self.group.timer_fired(key, now_ms)

    def persisted(self, revision: int, *, failed: bool, now_ms: int) -> list[Effect]:
        """Continue after a write ended."""
        return self.group.persisted(revision, failed=failed, now_ms=now_ms)

    def abandon(self, waiter: int, now_ms: int) -> list[Effect]:
        """Forget a waiter whose connection was lost."""
        return self.group.abandon(waiter, now_ms)

    def rows(self, record: object) -> Sequence[Row]:
        """Return the group's row, stamped with the wall time."""
        saved_ms = self._clock.now_ms()
        if isinstance(record, consumer_group_record.ConsumerGroupRecord):
            row = consumer_group_record.encode_consumer_group(record, saved_ms)
        else:
            assert isinstance(record, classic_group_record.ClassicGroupRecord), (
                f"not a group record: {record!r}"
            )
            row = classic_group_record.encode_classic_group(record, saved_ms)
        self.empty_since_ms = None if record.members else saved_ms
        return [(classic_group_record.encode_group_key(record.group_id), row)]


class HostedGroup(HostedMachine):
    """One group with its timers and waiting requests."""

    __slots__ = ("group", "group_machine")

    def __init__(self, machine: GroupStateMachine) -> None:
        super().__init__(machine, machine.group.group_id)
        self.group_machine = machine
        self.group = machine.group


class GroupTable:
    """The groups by id."""

    def __init__(self, config: GroupConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._hosted: dict[str, HostedGroup] = {}

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[HostedGroup]:
        return iter(self._hosted.values())

    @property
    def is_full(self) -> bool:
        """Whether the limit of groups is reached."""
        return len(self._hosted) >= self._config.groups_max

    def load(self, store: LedgerStore, offsets: OffsetStore, runtime: CoordinatorRuntime) -> None:
        """Load every group that has a row, then those that have only offsets."""
        for key, value in store.scan_rows(classic_group_record.GROUP_KEY_PREFIX):
            hosted, effects = self._loaded(classic_group_record.decode_group_key(key), value)
            runtime.perform(hosted, effects)
        for group_id in offsets.state.groups():
            self.ensure(group_id)

    def reload(
        self, failed: HostedMachine, store: LedgerStore, runtime: CoordinatorRuntime
    ) -> None:
        """Load a group from its row again, after a fault has closed it.

        Raises:
            StorageFailed: its row cannot be read now; the failed group stays until it can.
        """
        if self._hosted.get(failed.name) is not failed:
            return
        row = store.get_row(classic_group_record.encode_group_key(failed.name))
        del self._hosted[failed.name]
        if row is None:
            self.ensure(failed.name)
            return
        hosted, effects = self._loaded(failed.name, row)
        runtime.perform(hosted, effects)

    def get(self, group_id: str) -> HostedGroup | None:
        """Return a group, or None."""
        return self._hosted.get(group_id)

    def ensure(self, group_id: str) -> HostedGroup:
        """Return a group, a new empty one if there is none. The caller checks the limits."""
        hosted = self._hosted.get(group_id)
        return self._add(ClassicGroup(group_id, self._config)) if hosted is None else hosted

    def remove(self, group_id: str) -> HostedGroup:
        """Remove a group."""
        return self._hosted.pop(group_id)

    def restore(self, hosted: HostedGroup, runtime: CoordinatorRuntime) -> None:
        """Undo `remove` after a failed deletion, unless a new group has the id meanwhile.

        The group may have members again: that they left was not stored either.
        """
        if hosted.group.group_id in self._hosted:
            return
        now_ms = self._clock.monotonic_ms()
        old, effects = hosted.group, list[Effect]()
        restored: AnyGroup
        if isinstance(old, ConsumerGroup):
            restored, effects = ConsumerGroup.from_record(old.durable, self._config, now_ms)
        else:
            restored = ClassicGroup(old.group_id, self._config)
            restored.generation = old.generation
            restored.protocol_type = old.protocol_type
        runtime.perform(self._add(restored, hosted.group_machine.empty_since_ms), effects)

    def new_hosted(self, group: AnyGroup) -> HostedGroup:
        """Return a host that is not in the table yet."""
        return HostedGroup(GroupStateMachine(group, self._clock))

    def put(self, hosted: HostedGroup, runtime: CoordinatorRuntime) -> None:
        """Add a group; a group of the same id that it replaces ends."""
        before = self._hosted.get(hosted.group.group_id)
        if before is not None:
            runtime.retire(before)
            before.group.end()
        self._hosted[hosted.group.group_id] = hosted

    def _loaded(self, group_id: str, value: bytes) -> tuple[HostedGroup, list[Effect]]:
        now_ms = self._clock.monotonic_ms()
        group: AnyGroup
        if consumer_group_record.is_consumer_group_row(value):
            record, saved_ms = consumer_group_record.decode_consumer_group(group_id, value)
            group, effects = ConsumerGroup.from_record(record, self._config, now_ms)
            is_empty = not record.members
        else:
            classic, saved_ms = classic_group_record.decode_classic_group(group_id, value)
            group, effects = ClassicGroup.from_record(classic, self._config, now_ms)
            is_empty = not classic.members
        return self._add(group, saved_ms if is_empty else None), effects

    def _add(self, group: AnyGroup, empty_since_ms: int | None = None) -> HostedGroup:
        hosted = HostedGroup(GroupStateMachine(group, self._clock, empty_since_ms))
        self._hosted[group.group_id] = hosted
        return hosted

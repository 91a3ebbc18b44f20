"""Group config: the settings of the group coordinator, under Kafka's names in snake case.

Rule: plain values, and the only home of the limits of groups.
Must not know: where the values come from.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kledger.gateway.coordinator.assignor_plan import ASSIGNORS

if TYPE_CHECKING:
    from kledger.gateway.config import GatewayConfig

MEMBERS_PER_GROUP_MAX: Final = 100_000
"""Upper bound of `group_max_size`, whose default in Kafka means no limit."""


@dataclass(frozen=True, slots=True)
class ConsumerTimes:
    """Session timeout and heartbeat interval of members of the consumer protocol."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of all groups, and the exceptions of single groups.

    The limits from `group_id_bytes_max` on are not Kafka's: it has none, or constants in its code.

    Attributes:
        group_id_bytes_max: longer ids are INVALID_GROUP_ID.
        groups_max: more groups are POLICY_VIOLATION.
        pending_members_max: ids assigned with MEMBER_ID_REQUIRED and not used yet, per group.
        consumer_assignors: that members may ask for; the first one is the default.
        member_metadata_bytes_max: names and metadata of all protocols of one JoinGroup; names and
            expression of one ConsumerGroupHeartbeat.
        group_record_bytes_max: size of the stored row of one group.
        new_member_join_timeout_ms: how long a member may wait for its first generation.
        offsets_expiry_batch_max: rows deleted in one write.
        own_times: timeouts of single groups, by group id; they change while the server runs.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = MEMBERS_PER_GROUP_MAX
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = MEMBERS_PER_GROUP_MAX
    consumer_assignors: tuple[str, ...] = tuple(ASSIGNORS)
    consumer_migration_policy: str = "bidirectional"
    group_id_bytes_max: int = 4_096
    groups_max: int = 100_000
    pending_members_max: int = 10_000
    member_metadata_bytes_max: int = 1 << 20
    group_record_bytes_max: int = 16 << 20
    new_member_join_timeout_ms: int = 300_000
    offsets_expiry_batch_max: int = 10_000
    own_times: dict[str, ConsumerTimes] = field(default_factory=dict)

    @classmethod
    def from_gateway(cls, config: "GatewayConfig") -> "GroupConfig":
        """Return the settings of groups in the gateway's settings."""
        return cls(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=min(config.group_max_size, MEMBERS_PER_GROUP_MAX),
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_minutes=config.offsets_retention_minutes,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            consumer_max_size=min(config.group_consumer_max_size, MEMBERS_PER_GROUP_MAX),
            consumer_migration_policy=config.group_consumer_migration_policy,
            consumer_assignors=tuple(config.group_consumer_assignors.split(",")),
        )

    def times_of(self, group_id: str) -> ConsumerTimes:
        """Return the times in force for the members of a group."""
        return self.own_times.get(group_id) or ConsumerTimes(
            self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms
        )

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may change to the consumer protocol."""
        return self.consumer_migration_policy in {"bidirectional", "upgrade"}

    @property
    def may_downgrade(self) -> bool:
        """Whether a group changes back when its last member of the consumer protocol has left."""
        return self.consumer_migration_policy in {"bidirectional", "downgrade"}

    @property
    def offsets_retention_ms(self) -> int:
        """How long an offset is kept after the last use of its group."""
        return self.offsets_retention_minutes * 60_000

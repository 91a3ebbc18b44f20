"""Dispatch options: the limits and delays of a dispatcher.

Rule: plain values, checked where they enter.
Must not know: dispatchers.
"""

from dataclasses import dataclass

from kledger.subscriptions.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """How one dispatcher delivers.

    Attributes:
        unacked_subscription_max: unacknowledged records of all consumers together at which
            deliveries stop, until there are fewer than half; 0: no limit. Like the limit of a
            single consumer, it holds for shared and key_shared only.
        failover_delay_ms: how long the next active consumer waits after the one before has left.
        partition_index: spreads the active consumers of a topic over its partitions.
        read_entries_max: the most entries that one read asks for.
        read_bytes_max: the most bytes of those entries, beyond the first one.
        round_robin_entries_max: shared: the most entries that a consumer gets in a row.
        delayed_tick_ms: the least time between two rounds that release delayed records.
        delayed_max: delayed records at which no new entries are read.
        look_ahead_consumer_max: key_shared: queued pairs of key hash and entry, for each consumer,
            at which no new entries are read.
        look_ahead_max: the same for all consumers together.
    """

    unacked_subscription_max: int = 200_000
    failover_delay_ms: int = 1_000
    partition_index: int = 0
    read_entries_max: int = 500
    read_bytes_max: int = 2 << 20
    round_robin_entries_max: int = 20
    delayed_tick_ms: int = 100
    delayed_max: int = 1_000_000
    look_ahead_consumer_max: int = 2_000
    look_ahead_max: int = 20_000

    def __post_init__(self) -> None:
        for name in ("unacked_subscription_max", "failover_delay_ms", "partition_index"):
            value: int = getattr(self, name)
            if value < 0:
                raise InvalidRequest(f"{name} is {value}, expected at least 0")

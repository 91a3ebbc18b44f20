"""What a dispatcher may be told: limits and delays, each with a name.

Rule: plain values, checked where they enter.
Must not know: who uses them.
"""

from dataclasses import dataclass

from kledger.subscriptions.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """How one dispatcher hands out.

    Attributes:
        unacked_subscription_max: records handed out and not acknowledged, over all consumers, at
            which nobody gets more until there are fewer than half; 0: no limit. As the limit of a
            single consumer it holds for shared and key_shared only.
        failover_delay_ms: how long the next active consumer waits behind one that was.
        partition_index: spreads the active consumers of a topic's partitions.
        read_entries_max: how many entries one read asks for at most.
        read_bytes_max: of those entries, but at least one.
        round_robin_entries_max: so many entries go to one consumer before it is the next one's
            turn.
        delayed_tick_ms: delayed records that are due are looked for no more often than that.
        delayed_max: so many records wait for their time; with more, reading on waits, too.
        look_ahead_consumer_max: key_shared: pieces that wait for their consumer, for each consumer
            there is, at which reading on waits.
        look_ahead_max: the same for all together.
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

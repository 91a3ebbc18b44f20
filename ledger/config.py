"""Settings of a store and of one managed ledger, checked when they are made.

Rule: a value that cannot work is refused here; the error has its name, what was expected and what
was given.
Must not know: where settings come from. Defaults: Pulsar's, except that nothing is deleted unless a
retention is set.
"""

from dataclasses import dataclass, field
from typing import Literal

from kledger.ledger.errors import InvalidArgument
from kledger.ledger.offload.offload_policies import OffloadPolicies

NO_LIMIT = -1
KIB = 1024
MIB = 1024 * KIB
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of a store, for all its managed ledgers."""

    durability: Literal["fsync", "os"] = "fsync"
    """`fsync`: acknowledged means synced; `os`: acknowledged means written to the operating system,
    which survives a killed process but not a power cut."""
    cache_bytes: int = 64 * MIB
    """Memory limit of the entry cache for readers of the tail, objects included; 0 = no cache."""
    committer_queue_bytes_max: int = 64 * MIB
    """While more bytes of entries and rows are unconfirmed, no requests of producers are read."""
    committer_queue_count_max: int = 100_000
    """The same for the number of appends."""
    cold_read_bytes_max: int = 64 * MIB
    """Bytes read from the storage at once; further reads wait."""
    cold_reads_waiting_max: int = 10_000
    """While so many reads wait, further ones get TooManyRequests."""
    read_ahead_bytes_max: int = 16 * MIB
    """Limit of the read-ahead cache, for readers behind the entry cache; 0 = no read-ahead."""
    log_rewrite_bytes_per_second: int = 16 * MIB
    """Pace at which live entries are moved out of mostly dead log files, so that these can be
    removed; 0 = never."""
    log_dead_percent_max: int = 20
    """Share of the log that may be dead before entries are moved."""
    cursor_persist_per_second: int | None = None
    """How often a cursor writes its acknowledgements at most; unwritten ones are lost in a crash
    and their messages redelivered. None = with every group, as appends."""
    cursor_ranges_max: int = 10_000
    """Limit of the acknowledged ranges, and of the partly acknowledged batches, that are stored of
    a cursor, at times exceeded by a quarter; messages of the highest beyond it are redelivered
    after a restart."""
    cluster: str = "standalone"
    """Name of the cluster in metrics of cursors."""
    offload_parallel: int = 2
    """How many ledgers are copied to a tier at once; further ones wait."""
    offload_read_bytes_max: int = 64 * MIB
    """Bytes read from a tier at once; further reads wait."""
    offload_read_timeout_ms: int = 20_000
    """How long a read from a tier may take, waiting included."""

    def __post_init__(self) -> None:
        if self.durability not in ("fsync", "os"):
            raise InvalidArgument(f"durability: expected fsync or os, got {self.durability!r}")
        _check_at_least("cache_bytes", self.cache_bytes, 0)
        _check_at_least("committer_queue_bytes_max", self.committer_queue_bytes_max, 1)
        _check_at_least("committer_queue_count_max", self.committer_queue_count_max, 1)
        _check_at_least("cold_read_bytes_max", self.cold_read_bytes_max, 1)
        _check_at_least("cold_reads_waiting_max", self.cold_reads_waiting_max, 0)
        _check_at_least("read_ahead_bytes_max", self.read_ahead_bytes_max, 0)
        _check_at_least("log_rewrite_bytes_per_second", self.log_rewrite_bytes_per_second, 0)
        _check_at_least("cursor_ranges_max", self.cursor_ranges_max, 0)
        if self.cursor_persist_per_second is not None and self.cursor_persist_per_second <= 0:
            raise InvalidArgument(
                f"cursor_persist_per_second: expected more than 0 or none, "
                f"got {self.cursor_persist_per_second}"
            )
        _check_at_least("offload_parallel", self.offload_parallel, 1)
        _check_at_least("offload_read_bytes_max", self.offload_read_bytes_max, 1)
        _check_at_least("offload_read_timeout_ms", self.offload_read_timeout_ms, 1)
        _check_at_least("log_dead_percent_max", self.log_dead_percent_max, 10)
        if self.log_dead_percent_max > 100:
            raise InvalidArgument(
                f"log_dead_percent_max: expected at most 100, got {self.log_dead_percent_max}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerConfig:
    """Settings of one managed ledger. -1 switches a limit off.

    A ledger is full when any maximum is reached and it is older than `min_rollover_ms`; it is also
    closed when nothing was appended to it for `inactive_rollover_ms`. A closed ledger may be
    deleted when it was closed longer than `retention_ms` ago, or when the rest is still at least
    `retention_bytes`; retention by one of them alone leaves the other at -1. `shown_as` is the name
    in metrics and messages about its cursors, namespace and topic, from the next opening on; None
    is its own name.
    """

    max_entries_per_ledger: int = 50_000
    max_bytes_per_ledger: int = 100 * MIB
    min_rollover_ms: int = 0
    max_rollover_ms: int = 4 * HOUR_MS
    inactive_rollover_ms: int = NO_LIMIT
    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT
    shown_as: str | None = None
    offload: OffloadPolicies = field(default_factory=OffloadPolicies)

    def __post_init__(self) -> None:
        for name in (
            "max_entries_per_ledger",
            "max_bytes_per_ledger",
            "max_rollover_ms",
            "inactive_rollover_ms",
        ):
            value = getattr(self, name)
            if value != NO_LIMIT:
                _check_at_least(name, value, 1)
        _check_at_least("min_rollover_ms", self.min_rollover_ms, NO_LIMIT)
        _check_at_least("retention_ms", self.retention_ms, NO_LIMIT)
        _check_at_least("retention_bytes", self.retention_bytes, NO_LIMIT)
        if self.max_rollover_ms != NO_LIMIT and self.min_rollover_ms > self.max_rollover_ms:
            raise InvalidArgument(
                f"min_rollover_ms {self.min_rollover_ms} is above "
                f"max_rollover_ms {self.max_rollover_ms}"
            )
        if self.retention_ms > 0 and self.retention_bytes == 0:
            # Size 0 deletes at once, so the time would have no effect.
            raise InvalidArgument("retention_bytes 0 makes retention_ms meaningless; use -1")


def _check_at_least(name: str, value: int, minimum: int) -> None:
    if value < minimum:
        raise InvalidArgument(f"{name}: expected at least {minimum}, got {value}")

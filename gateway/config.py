"""GatewayConfig: the settings of the Kafka façade, under Kafka's own names in snake case.

Rule: a field is named as Kafka's broker setting with dots turned into underscores, so that
`kafka_items()` can show it under the name which users know; defaults are Kafka's, or are explained.
Must not know: where values come from (files, flags, environment); `kledger.settings` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

MIB = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class GatewayConfig:
    """What a gateway can be told. The advertised port is filled in when the listener is bound."""

    # Who we are.
    node_id: int = 1
    cluster_id: str = ""
    """Empty: the id that the store keeps, made at the first start."""
    advertised_host: str = ""
    """What clients are told to connect to. Empty: the host that the listener names; the name of
    this machine, with a warning, where that is every address (`0.0.0.0`)."""
    advertised_port: int = 0
    """0: the port of the listener."""

    # Topics and messages.
    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    message_max_bytes: int = 1_048_588
    fetch_max_bytes: int = 55 * MIB
    max_incremental_fetch_session_cache_slots: int = 1_000

    # Groups and their offsets.
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    """Between which a group can have a session timeout of its own."""
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    """The same for the interval of heartbeats."""
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: Literal["uniform,range", "range,uniform", "uniform", "range"] = (
        "uniform,range"
    )
    """The first is taken where no member asks for one."""
    group_consumer_migration_policy: Literal[
        "bidirectional", "upgrade", "downgrade", "disabled"
    ] = "bidirectional"

    # Transactions.
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000

    # Metrics of clients.
    telemetry_max_bytes: int = 1 * MIB
    """What one client may push at a time, compressed."""

    # Limits of connections. Over a limit: that socket is not read until there is room again.
    socket_request_max_bytes: int = 100 * MIB
    """One frame; a longer one closes the connection."""
    queued_max_requests: int = 500
    """Requests of one connection that were read and are not answered."""
    queued_max_request_bytes: int = 256 * MIB
    """Bytes of all requests that were read and are not answered, in the whole server."""
    queued_max_connection_bytes: int = 64 * MIB
    """The same for one connection; a single larger request is let in when nothing else waits."""
    queued_max_response_bytes: int = 256 * MIB
    """Bytes of all responses that clients have not taken, in the whole server. The less room there
    is, the less a fetch brings; when there is none, fetches wait, and connections that read nothing
    for 2 seconds are closed, those that hold most first."""
    send_buffer_max_bytes: int = 1 * MIB
    """Unsent response bytes at which a connection's next request waits for its slow reader."""
    max_connections: int = 2_147_483_647
    max_connections_per_ip: int = 2_147_483_647
    max_connections_per_ip_overrides: str = ""
    """`address:count` of addresses that have a limit of their own, with commas between them."""
    connections_max_idle_ms: int = 600_000

    # Quotas: how many samples a rate is measured over, and how long each is.
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1

    def kafka_items(self) -> Iterator[tuple[str, int | bool | str]]:
        """Yield every setting as (Kafka's dotted name, value)."""
        for field in fields(self):
            yield field.name.replace("_", "."), getattr(self, field.name)

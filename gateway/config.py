"""GatewayConfig: the settings of the Kafka façade, under Kafka's own names in snake case.

Rule: a field has the name of Kafka's broker setting with underscores for dots, so that
`kafka_items()` can show it under the name that users know; other defaults than Kafka's are
explained.
Must not know: the sources of values (files, flags, environment); `kledger.settings` does.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Literal

from kledger.security.secret_text import SecretText

MIB = 1024 * 1024


class PrefixedSettings(dict[str, str]):
    """The type of the settings of single listeners; values may be secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


@dataclass(slots=True, kw_only=True)
class GatewayConfig:
    """The settings of a gateway. The advertised port is filled in when the listener is bound."""

    # Node and cluster.
    node_id: int = 1
    cluster_id: str = ""
    """Empty: the id in the store, generated at the first start."""
    advertised_host: str = ""
    """The host that clients connect to. Empty: the listener's host, or, if that is every address
    (`0.0.0.0`), the name of this machine, with a warning."""
    advertised_port: int = 0
    """0: the port of the listener."""

    # Access rules.
    authorizer_class_name: Literal[
        "", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    ] = ""
    """The name of Kafka's authorizer: access rules (ACLs) decide what each user may do. Empty:
    every client may do everything."""
    super_users: str = ""
    """Users that may do everything, whatever the access rules say: `User:name`, separated by
    semicolons."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether every user may use a resource that no access rule names."""

    # Listeners, and how clients authenticate there; see docs/SECURITY.md.
    listener_addresses: str = ""
    """Kafka's `listeners`, if it names several, or one that is not PLAINTEXT: `NAME://HOST:PORT`,
    separated by commas; then `server.kafka` is not used."""
    advertised_addresses: str = ""
    """Kafka's `advertised.listeners` for them: what their clients connect to, in the same form."""
    listener_security_protocol_map: str = (
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
    )
    inter_broker_listener_name: str = ""
    """Accepted if there is such a listener, but unused: brokers do not connect to listeners."""
    listener_settings: PrefixedSettings = field(default_factory=PrefixedSettings, repr=False)
    """Settings of one listener: `listener.name.<name>.` before a name that begins with `ssl.` or
    `sasl.`, or `connections.max.reauth.ms`; `listener.name.<name>.plain.` for one mechanism."""
    ssl_keystore_type: str = "PEM"
    """PEM is the only type (Kafka: JKS)."""
    ssl_keystore_location: str = ""
    """A file with the private key and the certificates; it is read again when it changes."""
    ssl_keystore_key: SecretText = field(default=SecretText(), repr=False)
    ssl_keystore_certificate_chain: str = ""
    """Key and certificates as text, in place of a file."""
    ssl_key_password: SecretText = field(default=SecretText(), repr=False)
    ssl_truststore_type: str = "PEM"
    ssl_truststore_location: str = ""
    ssl_truststore_certificates: str = ""
    """The authorities of clients' certificates, as a file or as text."""
    ssl_client_auth: str = "none"
    """none, requested or required."""
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    ssl_principal_mapping_rules: str = "DEFAULT"
    sasl_enabled_mechanisms: str = "SCRAM-SHA-256,SCRAM-SHA-512"
    """Kafka's default is GSSAPI, which is not supported."""
    sasl_jaas_config: SecretText = field(default=SecretText(), repr=False)
    """Users of PLAIN, in Kafka's form; usually with the prefix of a listener and its mechanism."""
    sasl_oauthbearer_jwks_endpoint_url: str = ""
    """The keys of access tokens: `https://…`, `http://…` or `file:///…`; OAUTHBEARER needs it."""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = 3_600_000
    """How often a server is asked for keys; a file is read every 5 seconds."""
    sasl_oauthbearer_expected_issuer: str = ""
    """The `iss` claim that access tokens must have, exactly; OAUTHBEARER needs it."""
    sasl_oauthbearer_expected_audience: str = ""
    """One of these, separated by commas, is in the audience of a token; OAUTHBEARER needs it."""
    sasl_oauthbearer_clock_skew_seconds: int = 30
    sasl_oauthbearer_sub_claim_name: str = "sub"
    """The claim with the name of the user."""
    sasl_server_callback_handler_class: str = ""
    """Kafka's class for unsecured tokens lets OAUTHBEARER accept any user's; for development."""
    connections_max_reauth_ms: int = 0
    """How long a session lasts before its client must log in again; 0: no limit."""
    connection_failed_authentication_delay_ms: int = 100

    # Topics and messages.
    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    message_max_bytes: int = 1_048_588
    fetch_max_bytes: int = 55 * MIB
    max_incremental_fetch_session_cache_slots: int = 1_000

    # Compaction of topics.
    log_cleaner_enable: bool = True
    """Without it, topics are compacted only when a client asks for it."""
    log_cleaner_threads: int = 1
    """How many partitions are compacted at once, each in a process of its own."""
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_io_max_bytes_per_second: float = sys.float_info.max
    """What all compactions together read and write in a second; the default is no limit."""
    log_cleaner_slow_bytes_per_second: int = 500_000
    """What compactions that nobody has asked for read and write in a second while clients append.
    They are faster if they would not keep up with what is appended, or take hours."""
    log_cleaner_slow_burst_bytes: int = 128 * MIB
    """What they may read and write at once if they have done less before, so that small topics are
    compacted without delay."""
    log_cleaner_dedupe_buffer_size: int = 64 * MIB
    """Memory for the keys of one compaction (Kafka: of all together, 128 MiB). What does not fit
    goes to temporary files in the data folder."""

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
    """The limits of a group's own session timeout."""
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    """The limits of a group's own heartbeat interval."""
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: Literal["uniform,range", "range,uniform", "uniform", "range"] = (
        "uniform,range"
    )
    """A group whose members name none uses the first."""
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
    """Size of one push of a client, compressed."""

    # Delegation tokens.
    delegation_token_secret_key: SecretText = field(default=SecretText(), repr=False)
    """Signs delegation tokens; without it there are none. Another one invalidates all tokens."""
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    """How long a token lives unless it is renewed."""
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    """How often tokens that have expired are removed."""

    # Limits of connections. Over a limit, the server does not read the socket.
    socket_request_max_bytes: int = 100 * MIB
    """Size of one request; a larger one closes the connection."""
    queued_max_requests: int = 500
    """Unanswered requests of one connection; the server then stops reading it."""
    queued_max_request_bytes: int = 256 * MIB
    """Bytes of all unanswered requests in the server."""
    queued_max_connection_bytes: int = 64 * MIB
    """Bytes of the unanswered requests of one connection; a single larger request is accepted when
    no other is unanswered."""
    queued_max_response_bytes: int = 256 * MIB
    """Bytes of all unsent responses in the server. With less room, fetches return fewer bytes;
    without room they wait, and connections whose clients read nothing for 2 seconds are closed,
    those with the most unsent bytes first."""
    send_buffer_max_bytes: int = 1 * MIB
    """Unsent response bytes of a connection at which its next request waits."""
    max_connections: int = 2_147_483_647
    max_connections_per_ip: int = 2_147_483_647
    max_connections_per_ip_overrides: str = ""
    """`address:count`, separated by commas, for addresses with a limit of their own."""
    connections_max_idle_ms: int = 600_000

    # Quotas: the number of samples of a rate, and the length of each.
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1

    def kafka_items(self) -> Iterator[tuple[str, int | bool | str]]:
        """Yield every setting as (Kafka's dotted name, value)."""
        for each in fields(self):
            value = getattr(self, each.name)
            yield each.name.replace("_", "."), str(value) if isinstance(value, dict) else value

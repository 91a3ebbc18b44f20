"""Settings of a server, from file, environment and command line.

Rule: a section is the configuration class of the package that uses it, so that name, type and
default are written once. Later sources win: defaults, TOML file, KLEDGER_<SECTION>_<KEY>, --set,
flags. Nothing is opened, bound or written before all settings are read and checked.
Must not know: what the settings do.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.address_limits import parse_overrides
from kledger.gateway.listeners.listener_plan import ListenerMistake
from kledger.gateway.listeners.listener_settings import plans_of
from kledger.kubernetes_variables import is_kubernetes_variable
from kledger.ledger import InvalidArgument, StoreConfig
from kledger.native.config import NativeConfig
from kledger.security.authorizer import parse_super_users
from kledger.setting_names import translate
from kledger.setting_values import (
    INT32_MAX,
    INT64_MAX,
    ConfigText,
    OptionTable,
    SettingError,
    check_range,
    convert,
    split_address,
)
from kledger.topics.config.config_keys import CONFIG_KEYS
from kledger.topics.config.topic_config import TopicDefaults
from kledger.topics.errors import InvalidConfig

ENVIRONMENT_PREFIX = "KLEDGER_"
WORKERS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the process. An address is HOST:PORT; port 0 is any free one."""

    data: str = "./kledger-data"
    """The folder of all data."""
    memory: bool = False
    """Keep all data in memory; `data` is not used."""
    workers: int | None = None
    """How many processes share the work, each with a folder `worker-K` in `data` and ports of its
    own behind those of the addresses; limits hold for each of them. A folder keeps its workers:
    there may be more of them later, not fewer. None: one process, which has `data` for itself."""
    kafka: str | None = "127.0.0.1:9092"
    """The address for Kafka clients."""
    native: str | None = None
    """The address for native clients; none: they cannot connect."""
    admin: str | None = None
    """The address of `/health` and `/metrics`; none: there is no such listener."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged to standard error: debug, info, warning or error."""
    log_retention_check_interval_ms: int = 300_000
    """How often the server deletes records that exceed their topic's retention by age or size."""
    log_partitions_max_idle_ms: int = 300_000
    """After this time without a request a partition is closed and its memory is freed; below 1:
    never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSettings:
    """Settings of tiered storage."""

    url: str | None = None
    """The object store to which ledgers are offloaded: `s3://bucket/prefix`, `gs://bucket/prefix`,
    `az://container/prefix` or `file:///folder`; none: offloading is refused."""
    options: OptionTable = field(default_factory=OptionTable)
    """Options of the object store by the names of its library: `endpoint`, `region`,
    `access_key_id`, `secret_access_key`, `allow_http`, …; a table in TOML, `--set
    offload.options.region=…`, in the environment `region=…,endpoint=…`. The usual variables of the
    environment, such as AWS_ACCESS_KEY_ID, count, too."""
    cache_bytes: int = 256 << 20
    """Blocks of the object store in a cache on disk, beside the data, at most; 0: no cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Settings of a broker without a disk, whose data is in a database and an object store."""

    url: str | None = None
    """The PostgreSQL database of the cluster, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`;
    none: the server has a data folder."""
    store: str | None = None
    """The object store of the cluster, as for `offload.url`; `offload.options` are its options,
    too. It must be that of `kledger cluster init`."""
    sql_asynchronous: bool = False
    """Serve although the database has no synchronous standby, or is not synced: a failover or a
    crash of the database may lose what was acknowledged in the last seconds before."""
    peers: str | None = None
    """In a cluster of nodes, the address for other servers: node K listens on the port + K; port 0
    is any free one. None: any free ports of the first host for clients."""
    advertised_peers: str | None = None
    """What other servers connect to, if it is not `cluster.peers`: for node K the port + K; port 0
    is the one that is bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All sections."""

    server: ServerSettings = field(default_factory=ServerSettings)
    storage: StoreConfig = field(default_factory=StoreConfig)
    kafka: GatewayConfig = field(default_factory=GatewayConfig)
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    native: NativeConfig = field(default_factory=NativeConfig)
    offload: OffloadSettings = field(default_factory=OffloadSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)


# Broker-level names of topic settings (`log.retention.ms`), by their names in our section.
TOPIC_CONFIGS: Mapping[str, str] = {
    synonym.name.replace(".", "_"): synonym.name
    for key in CONFIG_KEYS.values()
    for synonym in key.synonyms
}
# Settings of the gateway that are the defaults of topics too.
SHARED_WITH_TOPICS = {"message_max_bytes": "message.max.bytes"}

# Limits that the type of a field does not express; every other number is 0 or more.
RANGES: Mapping[str, tuple[int, int]] = {
    "kafka.node_id": (0, INT32_MAX),
    "kafka.num_partitions": (1, 100_000),
    "kafka.default_replication_factor": (1, 1),
    "kafka.advertised_port": (0, 65_535),
    "kafka.group_max_size": (1, INT32_MAX),
    "kafka.group_consumer_max_size": (1, INT32_MAX),
    "kafka.group_consumer_session_timeout_ms": (1, INT32_MAX),
    "kafka.group_consumer_heartbeat_interval_ms": (1, INT32_MAX),
    "kafka.group_consumer_min_session_timeout_ms": (1, INT32_MAX),
    "kafka.group_consumer_max_session_timeout_ms": (1, INT32_MAX),
    "kafka.group_consumer_min_heartbeat_interval_ms": (1, INT32_MAX),
    "kafka.group_consumer_max_heartbeat_interval_ms": (1, INT32_MAX),
    "kafka.offsets_retention_minutes": (1, INT32_MAX),
    "kafka.offsets_retention_check_interval_ms": (1, INT64_MAX),
    "kafka.socket_request_max_bytes": (1, INT32_MAX),
    "kafka.queued_max_response_bytes": (1, INT64_MAX),
    "kafka.message_max_bytes": (0, INT32_MAX),
    "kafka.delegation_token_max_lifetime_ms": (1, INT64_MAX),
    "kafka.delegation_token_expiry_time_ms": (1, INT64_MAX),
    "kafka.delegation_token_expiry_check_interval_ms": (1, INT64_MAX),
    "kafka.telemetry_max_bytes": (1, INT32_MAX),
    "kafka.transaction_max_timeout_ms": (1, INT32_MAX),
    "kafka.connections_max_idle_ms": (-1, INT64_MAX),
    "kafka.max_connections": (1, INT32_MAX),
    "kafka.max_connections_per_ip": (0, INT32_MAX),
    "kafka.quota_window_num": (1, INT32_MAX),
    "kafka.quota_window_size_seconds": (1, INT32_MAX),
    "kafka.controller_quota_window_num": (1, INT32_MAX),
    "kafka.controller_quota_window_size_seconds": (1, INT32_MAX),
    "native.delivery_bytes_max": (1, INT64_MAX),
    "native.delivery_bytes_total_max": (1, INT64_MAX),
    "native.function_timeout_ms": (1, INT32_MAX),
    "native.function_processes_max": (1, 1_000),
    "native.keepalive_ms": (100, INT32_MAX),
    "native.max_connections": (1, INT32_MAX),
    "native.streams_max": (1, INT32_MAX),
    "server.log_retention_check_interval_ms": (1, INT64_MAX),
    "server.log_partitions_max_idle_ms": (-1, INT64_MAX),
    "server.workers": (1, WORKERS_MAX),
}


def own_names() -> dict[str, Any]:
    """Return the type of every setting by its own name, `section.field`."""
    kinds = {
        f"{section.name}.{each}": kind
        for section in fields(Settings)
        for each, kind in get_type_hints(section.type).items()
    }
    del kinds["topics.configs"], kinds["topics.num_partitions"]
    for name in TOPIC_CONFIGS:
        if f"kafka.{name}" not in kinds:
            kinds[f"topics.{name}"] = ConfigText
    return kinds


def variable_of(name: str) -> str:
    """Return the environment's name for a setting of ours, `section.field`."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_", 1).upper()


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Read all sources, the later ones over the earlier ones.

    Args:
        file: a TOML file.
        environment: all variables of the process; those of other programs and of Kubernetes
            services are skipped.
        assignments: `KEY=VALUE` of each --set.
        flags: values of the command line's other flags, by own name.

    Raises:
        SettingError: one line about the first mistake.
    """
    kinds = own_names()
    values: dict[str, Any] = {}
    sources = (
        *(_from_file(file) if file is not None else ()),
        *_from_environment(environment or {}, kinds),
        *(_from_assignment(each) for each in assignments),
        *(("the command line", name, value) for name, value in (flags or {}).items()),
    )
    for source, name, value in sources:
        try:
            for own_name, own_value in translate(name, value, kinds).items():
                converted = convert(name, kinds[own_name], own_value)
                if isinstance(converted, dict):  # the tables of several sources add up
                    converted = type(converted)({**values.get(own_name, {}), **converted})
                if name.endswith("listeners") and own_name == "server.kafka":
                    values.pop("kafka.listener_addresses", None)  # from an earlier source
                values[own_name] = converted
                check_range(name, values[own_name], *RANGES.get(own_name, (0, INT64_MAX)))
        except SettingError as error:
            raise SettingError(f"{error} (from {source})") from None
    return _checked(_assembled(values))


def _assembled(values: Mapping[str, object]) -> Settings:
    """Put the values into their sections, whose classes check them."""
    by_section: dict[str, dict[str, Any]] = {section.name: {} for section in fields(Settings)}
    for name, value in values.items():
        section_name, _, key = name.partition(".")
        by_section[section_name][key] = value
    by_section["topics"] = _topic_defaults(by_section["topics"], by_section["kafka"])
    settings = Settings()
    for section_name, own in by_section.items():
        try:
            changed: Any = replace(getattr(settings, section_name), **own)
        except InvalidArgument as error:
            raise SettingError(f"{section_name}.{error}") from None
        except InvalidConfig as error:
            raise SettingError(str(error)) from None
        settings = replace(settings, **{section_name: changed})
    return settings


def _topic_defaults(own: Mapping[str, Any], kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of TopicDefaults: defaults of topic settings by Kafka's names, the rest."""
    configs = {TOPIC_CONFIGS[key]: value for key, value in own.items() if key in TOPIC_CONFIGS}
    for key, name in SHARED_WITH_TOPICS.items():
        if key in kafka:
            configs[name] = str(kafka[key])
    rest = {key: value for key, value in own.items() if key not in TOPIC_CONFIGS}
    if "num_partitions" in kafka:
        rest["num_partitions"] = kafka["num_partitions"]
    return {**rest, "configs": configs}


def _checked(settings: Settings) -> Settings:
    """Check values against each other, and the form of addresses."""
    try:
        plans_of(settings.kafka)
    except ListenerMistake as error:
        raise SettingError(str(error)) from None
    for name in ("kafka", "native", "admin"):
        if (address := getattr(settings.server, name)) is not None:
            split_address(f"server.{name}", address)
    for name in ("peers", "advertised_peers"):
        if (address := getattr(settings.cluster, name)) is not None:
            split_address(f"cluster.{name}", address)
    kafka = settings.kafka
    if kafka.group_min_session_timeout_ms > kafka.group_max_session_timeout_ms:
        raise SettingError(
            f"group.min.session.timeout.ms: expected at most group.max.session.timeout.ms "
            f"({kafka.group_max_session_timeout_ms}), got {kafka.group_min_session_timeout_ms}"
        )
    try:
        parse_overrides(kafka.max_connections_per_ip_overrides)
    except ValueError as error:
        raise SettingError(f"max.connections.per.ip.overrides: {error}") from None
    try:
        parse_super_users(kafka.super_users)
    except ValueError as error:
        raise SettingError(f"super.users: {error}") from None
    return settings


def _from_file(file: Path) -> Iterator[tuple[str, str, object]]:
    import tomllib  # late, as most servers have no file

    try:
        with file.open("rb") as opened:
            content = tomllib.load(opened)
    except OSError as error:
        raise SettingError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{file}: not TOML: {error}") from None
    for name, value in _flattened("", content):
        yield str(file), name, value


def _flattened(prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Name every value by its path: `num.partitions = 3` is a table in a table to TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


def _from_environment(
    environment: Mapping[str, str], kinds: Mapping[str, object]
) -> Iterator[tuple[str, str, object]]:
    by_variable = {variable_of(name): name for name in kinds}
    for variable, value in sorted(environment.items()):
        if variable in by_variable:
            yield variable, by_variable[variable], value
        elif variable.startswith(ENVIRONMENT_PREFIX) and not is_kubernetes_variable(
            variable, value
        ):
            raise SettingError(f"{variable}: there is no such setting (from the environment)")


def _from_assignment(text: str) -> tuple[str, str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingError(f"--set: expected KEY=VALUE, got {text!r}")
    return "--set", name.strip(), value.strip()

"""Client metrics: subscriptions to metrics of clients (KIP-714).

Rule: a subscription exists while it has a setting, and takes effect when that is durable; names,
defaults and limits of its settings are Kafka's.
Must not know: what clients send, where their metrics go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kledger.gateway.api_errors import ApiError
from kledger.gateway.configs.dynamic_settings import DynamicSettings
from kledger.gateway.regex import InvalidRegex, Regex, compile_regex
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import TableStore
from kledger.topics import ConfigType, InvalidConfig
from kledger.topics.config.config_keys import ConfigKey
from kledger.topics.config.config_values import normal_text, parse

PREFIX: Final = b"gateway/client_metrics/"
METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
ALL_METRICS: Final = "*"
"""Instead of prefixes: every metric."""
MATCH_NAMES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""By what a subscription can choose its clients."""

CLIENT_METRICS_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        ConfigKey(
            INTERVAL,
            ConfigType.INT,
            "300000",
            "How often a client sends its metrics, in milliseconds, from"
            f" {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}.",
        ),
        ConfigKey(
            MATCH,
            ConfigType.LIST,
            "",
            "Of which clients metrics are wanted: name=expression, where every expression of RE2"
            f" must match; empty: of all. Names are {', '.join(MATCH_NAMES)}.",
        ),
        ConfigKey(
            METRICS,
            ConfigType.LIST,
            "",
            f"The metrics wanted, by the beginnings of their names; {ALL_METRICS} is all, empty is"
            " none.",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsSubscription:
    """What one subscription asks of clients.

    Attributes:
        name: of the subscription.
        metrics: beginnings of names, or `ALL_METRICS` among them.
        interval_ms: how often a client is to send.
        matches: expressions by the names of `MATCH_NAMES`; all must match, and each the whole
            text. None: every client is meant.
    """

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    matches: Mapping[str, Regex]


class ClientMetricsSubscriptions(DynamicSettings):
    """The subscriptions of one server.

    Attributes:
        version: rises with each change.
    """

    def __init__(self, store: TableStore) -> None:
        super().__init__(store, PREFIX)
        self._subscriptions: dict[str, ClientMetricsSubscription] = {}
        self.version = 0
        self._load()

    def subscriptions(self) -> Mapping[str, ClientMetricsSubscription]:
        """Return all subscriptions, by name."""
        return self._subscriptions

    def _check_name(self, name: str) -> None:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")

    def _validated(self, setting: str, text: str) -> str:
        # Some refusals are INVALID_REQUEST and some INVALID_CONFIG, as they are in Apache Kafka.
        key = CLIENT_METRICS_KEYS.get(setting)
        if key is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown client metrics configuration: {setting}, expected "
                f"{', '.join(CLIENT_METRICS_KEYS)}",
            )
        value = parse(setting, key.type, text, key.allowed)
        if isinstance(value, tuple) and "" in value:
            raise InvalidConfig(f"Configuration '{setting}' values must not be empty, got {text!r}")
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {value} for {setting}, interval must be between "
                f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX}",
            )
        return normal_text(value)

    def _validate_all(self, name: str, settings: Mapping[str, str]) -> None:
        _subscription(name, settings)

    def _apply(self, name: str) -> None:
        settings = self._table.of(name)
        if settings:
            self._subscriptions[name] = _subscription(name, settings)
        else:
            self._subscriptions.pop(name, None)
        self.version += 1


def _subscription(name: str, settings: Mapping[str, str]) -> ClientMetricsSubscription:
    texts = {key.name: settings.get(key.name, key.default) for key in CLIENT_METRICS_KEYS.values()}
    return ClientMetricsSubscription(
        name=name,
        metrics=_elements(texts[METRICS]),
        interval_ms=int(texts[INTERVAL]),
        matches=dict(map(_match, _elements(texts[MATCH]))),
    )


def _elements(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _match(text: str) -> tuple[str, Regex]:
    """Return one choice of clients; of two by the same name the later one counts."""
    name, *patterns = (part.strip() for part in text.split("="))
    if name not in MATCH_NAMES or len(patterns) != 1 or not patterns[0]:
        raise InvalidConfig(
            f"Illegal client matching pattern: {text}, expected name=expression with one of "
            f"{', '.join(MATCH_NAMES)}"
        )
    try:
        return name, compile_regex(patterns[0])
    except InvalidRegex as error:
        raise InvalidConfig(f"Illegal client matching pattern: {text}: {error}") from None

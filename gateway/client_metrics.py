"""Client metrics: which metrics of which clients are wanted, as subscriptions (KIP-714).

Rule: a subscription exists while something is set for it, and holds when that is durable; names,
defaults and limits of its settings are Kafka's.
Must not know: what clients send, where their metrics go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.expressions import Expression, InvalidExpression, compile_expression
from gateway.refusals import Refused
from gateway.settings_table import SettingsTable, changed, normal_text
from gateway.wire.error_codes import ErrorCode
from ledger import LedgerStore
from topics import ConfigType, InvalidConfig
from topics.config_keys import ConfigKey
from topics.config_values import parse

PREFIX: Final = b"gateway/client_metrics/"
METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
ALL_METRICS: Final = "*"
"""In place of prefixes: every metric."""
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
    matches: Mapping[str, Expression]


class ClientMetrics:
    """The subscriptions of one server.

    Attributes:
        version: rises with each change.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._table = SettingsTable[str](store, PREFIX)
        self._subscriptions = {
            name: _subscription(name, settings) for name, settings in self._table.all.items()
        }
        self.version = 0

    def subscriptions(self) -> Mapping[str, ClientMetricsSubscription]:
        """Return all subscriptions, by name."""
        return self._subscriptions

    def of(self, name: str) -> Mapping[str, str]:
        """Return what is set for a subscription; nothing if there is none.

        Raises:
            Refused: INVALID_REQUEST: the name is empty.
        """
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "the name of a subscription is never empty")
        return self._table.of(name)

    async def alter(
        self, name: str, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings of a subscription, or only check the changes; None takes one back.

        Raises:
            Refused: nothing was changed.
            TopicsError: nothing was changed.
        """
        after = changed(self.of(name), changes, _checked, replace=replace)
        subscription = _subscription(name, after)
        if validate_only:
            return
        await self._table.put(name, after)
        if after:
            self._subscriptions[name] = subscription
        else:
            self._subscriptions.pop(name, None)
        self.version += 1


def _checked(name: str, text: str) -> str:
    """Return the text of a setting as it is stored; Apache Kafka has these two codes for it."""
    key = CLIENT_METRICS_KEYS.get(name)
    if key is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"unknown setting {name!r}, expected {', '.join(CLIENT_METRICS_KEYS)}",
        )
    value = parse(name, key.type, text, key.allowed)
    if isinstance(value, tuple) and "" in value:
        raise InvalidConfig(f"{name}: expected no empty element, got {text!r}")
    if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"{name}: expected {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}, got {value}",
        )
    return normal_text(value)


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


def _match(text: str) -> tuple[str, Expression]:
    """Return one choice of clients; of two by the same name the later one counts."""
    name, *patterns = (part.strip() for part in text.split("="))
    if name not in MATCH_NAMES or len(patterns) != 1 or not patterns[0]:
        raise InvalidConfig(
            f"{MATCH}: expected name=expression with one of {', '.join(MATCH_NAMES)}, got {text!r}"
        )
    try:
        return name, compile_expression(patterns[0])
    except InvalidExpression as error:
        raise InvalidConfig(f"{MATCH}: {text!r}: {error}") from None

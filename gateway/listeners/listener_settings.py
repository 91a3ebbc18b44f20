"""Listener settings: the settings of one listener and mechanism; the most specific name wins.

    listener.name.<listener>.<mechanism>.<setting>, listener.name.<listener>.<setting>, <setting>

Rule: names of listeners and mechanisms are in small letters here, as in Kafka. A name that no
listener has, and a setting that cannot have the prefix, are mistakes: a setting of security that
nothing reads would leave a listener open.
Must not know: what the settings do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Final

from kledger.gateway.config import GatewayConfig
from kledger.gateway.listeners.listener_plan import (
    ListenerMistake,
    ListenerPlan,
    plan_listeners,
)

PREFIX: Final = "listener.name."
FAMILIES: Final = ("ssl.", "sasl.")
"""How names begin that may be given for one listener."""
REAUTHENTICATION: Final = "connections.max.reauth.ms"
_GLOBAL: Final = {field.name.replace("_", "."): field.name for field in fields(GatewayConfig)}
_DEFAULTS: Final = GatewayConfig()


def may_be_prefixed(name: str) -> bool:
    """Return whether a setting of ours can be given for one listener."""
    return name in _GLOBAL and (name.startswith(FAMILIES) or name == REAUTHENTICATION)


def is_security_configured(config: GatewayConfig) -> bool:
    """Return whether a setting that could be given for one listener was given for all."""
    return any(
        getattr(config, field) != getattr(_DEFAULTS, field)
        for name, field in _GLOBAL.items()
        if may_be_prefixed(name)
    )


class ListenerSettings:
    """The settings of one listener."""

    def __init__(self, config: GatewayConfig, listener: str) -> None:
        self._config = config
        self._prefix = f"{listener.lower()}."

    def text(self, name: str, mechanism: str = "") -> str:
        """Return the text of a setting; empty if it is not set.

        Args:
            name: Kafka's.
            mechanism: for a setting of one; empty: of all.
        """
        given = self._config.listener_settings
        if mechanism:
            own = given.get(f"{self._prefix}{mechanism.lower()}.{name}")
            if own is not None:
                return str(own)
        own = given.get(f"{self._prefix}{name}")
        return str(getattr(self._config, _GLOBAL[name]) if own is None else own)

    def number(self, name: str, mechanism: str = "") -> int:
        """Return a setting that is a whole number.

        Raises:
            ListenerMistake: it is none.
        """
        text = self.text(name, mechanism)
        if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 19:
            raise ListenerMistake(f"{name}: expected a whole number, got {text!r}")
        return int(text)

    def words(self, name: str) -> list[str]:
        """Return a setting that is a list with commas."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]


def plans_of(config: GatewayConfig) -> tuple[ListenerPlan, ...]:
    """Return the listeners of the settings; none if `server.kafka` alone says where to listen.

    Raises:
        ListenerMistake: a setting of listeners is wrong.
    """
    if not config.listener_addresses:
        if config.advertised_addresses:
            raise ListenerMistake("advertised.listeners: expected the names of listeners")
        check_prefixed(config.listener_settings, ["PLAINTEXT"])
        return ()
    plans = plan_listeners(
        config.listener_addresses,
        advertised=config.advertised_addresses,
        protocol_map=config.listener_security_protocol_map,
    )
    names = [each.name for each in plans]
    check_prefixed(config.listener_settings, names)
    internal = config.inter_broker_listener_name.upper()
    if internal and internal not in names:
        raise ListenerMistake(
            f"inter.broker.listener.name: expected one of {', '.join(names)}, got {internal!r}"
        )
    return plans


def check_prefixed(given: Mapping[str, object], listeners: Iterable[str]) -> None:
    """Refuse settings of a listener or a mechanism that nothing would read.

    Args:
        given: by name without `listener.name.`.
        listeners: the names of all listeners.

    Raises:
        ListenerMistake: which, and what was expected.
    """
    names = {each.lower() for each in listeners}
    for name in given:
        listener, _, rest = name.partition(".")
        if listener not in names:
            known = ", ".join(sorted(names))
            raise ListenerMistake(
                f"{PREFIX}{name}: there is no listener {listener!r}, expected one of {known}"
            )
        _, _, of_mechanism = rest.partition(".")
        if not may_be_prefixed(rest) and not may_be_prefixed(of_mechanism):
            raise ListenerMistake(f"{PREFIX}{name}: a listener has no such setting")

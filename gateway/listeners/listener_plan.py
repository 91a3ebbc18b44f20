"""Listener plan: the listeners that the settings name, with their protocols and addresses.

Rule: pure; the settings have Kafka's form. A listener without an advertised address advertises the
one that it is bound to.
Must not know: sockets, certificates, mechanisms.
"""

import re
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import Final

LISTENERS_MAX: Final = 32
ANY_HOST: Final = "0.0.0.0"
_ADDRESS: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[^\]]*\]|[^:]*):(?P<port>\d{1,5})"
)


class SecurityProtocol(Enum):
    """How clients of a listener connect."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in with SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


DEFAULT_PROTOCOL_MAP: Final = ",".join(f"{each.name}:{each.name}" for each in SecurityProtocol)


class ListenerMistake(ValueError):
    """A setting of listeners is wrong; the message begins with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerPlan:
    """One listener.

    Attributes:
        advertised_host: what clients connect to; empty: the listener's own address.
        advertised_port: 0: the port of the listener.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0


def plan_listeners(
    listeners: str, *, advertised: str = "", protocol_map: str = DEFAULT_PROTOCOL_MAP
) -> tuple[ListenerPlan, ...]:
    """Return the listeners in the order of the setting.

    Args:
        listeners: `NAME://HOST:PORT`, separated by commas; without a host: every address.
        advertised: the addresses that clients connect to, of the same names.
        protocol_map: `NAME:PROTOCOL`, separated by commas.

    Raises:
        ListenerMistake: what is wrong, and with which setting.
    """
    protocols = _protocols(protocol_map)
    addresses = _addresses("listeners", listeners)
    shown = _addresses("advertised.listeners", advertised)
    for name, (host, _) in shown.items():
        if name not in addresses:
            raise ListenerMistake(
                f"advertised.listeners: expected names of listeners, got {name!r}"
            )
        if host in ("", ANY_HOST, "::"):
            raise ListenerMistake(f"advertised.listeners: {name}: expected a host, got {host!r}")
    ports = [port for _, port in addresses.values() if port]
    if len(set(ports)) < len(ports):
        raise ListenerMistake("listeners: expected each port once")
    plans = []
    for name, (host, port) in addresses.items():
        protocol = protocols.get(name)
        if protocol is None:
            raise ListenerMistake(
                f"listener.security.protocol.map: expected a protocol for listener {name!r}"
            )
        advertised_host, advertised_port = shown.get(name, ("", 0))
        plans.append(
            ListenerPlan(
                name=name,
                protocol=protocol,
                host=host or ANY_HOST,
                port=port,
                advertised_host=advertised_host,
                advertised_port=advertised_port,
            )
        )
    return tuple(plans)


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach a host; False for names in general."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _addresses(setting: str, text: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > LISTENERS_MAX:
        raise ListenerMistake(f"{setting}: expected at most {LISTENERS_MAX}, got {len(parts)}")
    for part in parts:
        address = _ADDRESS.fullmatch(part)
        if address is None or int(address["port"]) > 65_535:
            raise ListenerMistake(f"{setting}: expected NAME://HOST:PORT, got {part!r}")
        name = address["name"].upper()
        if name in found:
            raise ListenerMistake(f"{setting}: expected each name once, got {name!r} again")
        found[name] = address["host"].strip("[]"), int(address["port"])
    return found


def _protocols(text: str) -> dict[str, SecurityProtocol]:
    setting, found = "listener.security.protocol.map", dict[str, SecurityProtocol]()
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (each.strip().upper() for each in part.partition(":"))
        if not name or protocol not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ListenerMistake(f"{setting}: expected NAME:PROTOCOL with {known}, got {part!r}")
        if name in found:
            raise ListenerMistake(f"{setting}: expected each name once, got {name!r} again")
        found[name] = SecurityProtocol[protocol]
    return found

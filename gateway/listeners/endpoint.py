"""Endpoint: one listener with what its clients need to connect and to log in.

Rule: an endpoint is complete, or it is not opened: a mechanism without users' line where it needs
one, a protocol without keys, a rule that cannot be read end the start with the setting's name.
Must not know: connections, sockets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kledger.gateway.brokers import AdvertisedAddress
from kledger.gateway.config import GatewayConfig
from kledger.gateway.listeners.listener_plan import (
    ListenerMistake,
    ListenerPlan,
    SecurityProtocol,
)
from kledger.gateway.listeners.listener_settings import REAUTHENTICATION, ListenerSettings
from kledger.security.credentials import BY_SASL_NAME, PLAIN
from kledger.security.jaas import parse_jaas
from kledger.security.sasl.mechanism import MakeMechanism
from kledger.security.sasl.mechanisms import Mechanisms
from kledger.security.sasl.oauth_bearer import OAuthBearerConfig
from kledger.security.sasl.oauth_bearer_state import OAUTHBEARER
from kledger.security.tls.pem_text import TlsMistake
from kledger.security.tls.principal_mapping import PrincipalMapping
from kledger.security.tls.tls_context import TlsContext
from kledger.security.tls.tls_settings import TlsSettings

JAAS: Final = "sasl.jaas.config"
MODULES: Final = {
    PLAIN: "PlainLoginModule",
    OAUTHBEARER: "OAuthBearerLoginModule",
    **dict.fromkeys(BY_SASL_NAME, "ScramLoginModule"),
}
"""The last part of the name of the login module that Kafka has for a mechanism."""


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """One listener, as its connections see it.

    Attributes:
        advertised: filled in when the listener is bound.
        tls: None: connections are not encrypted.
        mechanisms: what begins a login, by mechanism; empty: clients do not log in.
        session_max_ms: by mechanism; 0: no limit.
    """

    plan: ListenerPlan
    advertised: AdvertisedAddress
    tls: TlsContext | None = None
    mapping: PrincipalMapping | None = None
    mechanisms: Mapping[str, MakeMechanism] = field(default_factory=dict)
    session_max_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def authenticates(self) -> bool:
        """Whether every client of this listener is known by name."""
        has_certificate = self.tls is not None and self.tls.settings.client_auth == "required"
        return bool(self.mechanisms) or has_certificate


def make_endpoint(config: GatewayConfig, plan: ListenerPlan, mechanisms: Mechanisms) -> Endpoint:
    """Build one listener.

    Raises:
        ListenerMistake: a setting cannot work.
    """
    settings = ListenerSettings(config, plan.name)
    endpoint = Endpoint(
        plan=plan,
        advertised=AdvertisedAddress(plan.name, plan.advertised_host, plan.advertised_port),
    )
    try:
        if plan.protocol.has_tls:
            endpoint.tls = TlsContext(TlsSettings.read(settings.text), plan.name)
        if plan.protocol is SecurityProtocol.SSL:
            endpoint.mapping = _mapping(settings)
    except TlsMistake as error:
        raise ListenerMistake(f"listener {plan.name}: {error}") from None
    if plan.protocol.has_sasl:
        names = offered_mechanisms(plan, settings)
        if not names:
            raise ListenerMistake(
                f"listener {plan.name}: sasl.enabled.mechanisms: expected a mechanism"
            )
        endpoint.mechanisms = {
            name: _make_mechanism(plan, settings, name, mechanisms) for name in names
        }
        endpoint.session_max_ms = {
            name: settings.number(REAUTHENTICATION, name) for name in endpoint.mechanisms
        }
    return endpoint


def offered_mechanisms(plan: ListenerPlan, settings: ListenerSettings) -> list[str]:
    """Return the names of the mechanisms of a listener, in capital letters; none without SASL."""
    if not plan.protocol.has_sasl:
        return []
    return [name.upper() for name in settings.words("sasl.enabled.mechanisms")]


def _mapping(settings: ListenerSettings) -> PrincipalMapping:
    name = "ssl.principal.mapping.rules"
    try:
        return PrincipalMapping(settings.text(name))
    except ValueError as error:
        raise TlsMistake(f"{name}: {error}") from None


def _make_mechanism(
    plan: ListenerPlan, settings: ListenerSettings, name: str, mechanisms: Mechanisms
) -> MakeMechanism:
    if name in BY_SASL_NAME:
        _users_of(plan, settings, name)  # a line that cannot be read is a mistake here, too
        return mechanisms.make_scram(BY_SASL_NAME[name])
    if name == PLAIN:
        return mechanisms.make_plain(_users_of(plan, settings, name))
    if name == OAUTHBEARER:
        _users_of(plan, settings, name)
        try:
            return mechanisms.make_oauth_bearer(oauth_bearer_config(settings))
        except ValueError as error:
            raise ListenerMistake(f"listener {plan.name}: {error}") from None
    raise ListenerMistake(
        f"listener {plan.name}: sasl.enabled.mechanisms: expected {', '.join(MODULES)}, "
        f"got {name!r}"
    )


def oauth_bearer_config(settings: ListenerSettings) -> OAuthBearerConfig:
    """Return the settings of OAUTHBEARER of one listener.

    Raises:
        ListenerMistake: a number is none.
    """

    def text(name: str) -> str:
        return settings.text(f"sasl.oauthbearer.{name}", OAUTHBEARER)

    def number(name: str) -> int:
        return settings.number(f"sasl.oauthbearer.{name}", OAUTHBEARER)

    return OAuthBearerConfig(
        jwks_endpoint_url=text("jwks.endpoint.url"),
        expected_issuer=text("expected.issuer"),
        expected_audience=tuple(each.strip() for each in text("expected.audience").split(",")),
        clock_skew_seconds=number("clock.skew.seconds"),
        sub_claim_name=text("sub.claim.name"),
        jwks_endpoint_refresh_ms=number("jwks.endpoint.refresh.ms"),
        handler_class=settings.text("sasl.server.callback.handler.class", OAUTHBEARER),
    )


def given_users(config: GatewayConfig, plans: Sequence[ListenerPlan]) -> dict[str, str]:
    """Return the passwords of all users of PLAIN that the settings name, by user.

    Raises:
        ListenerMistake: a line cannot be read.
    """
    found: dict[str, str] = {}
    for plan in plans:
        settings = ListenerSettings(config, plan.name)
        if PLAIN in offered_mechanisms(plan, settings):
            found.update(_users_of(plan, settings, PLAIN))
    return found


def _users_of(plan: ListenerPlan, settings: ListenerSettings, mechanism: str) -> dict[str, str]:
    """Return the users of the JAAS line of a mechanism; no message has anything of the line."""
    text = settings.text(JAAS, mechanism)
    if not text:
        return {}
    where = f"listener.name.{plan.name.lower()}.{mechanism.lower()}.{JAAS}"
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        raise ListenerMistake(f"{where}: {error}") from None
    if entry.module.rpartition(".")[2] != MODULES[mechanism]:
        raise ListenerMistake(f"{where}: expected the module {MODULES[mechanism]}")
    return entry.users

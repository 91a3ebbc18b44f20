"""Security of the native and the admin listener: their TLS and logins, by the Kafka settings.

Rule: both have the users, the limits and the authorizer of the Kafka listeners. TLS has the
settings `ssl.*` without the prefix of a listener; what cannot work ends the start.
Must not know: what the listeners serve.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kledger.gateway.config import GatewayConfig
from kledger.gateway.listeners.endpoint import (
    given_users,
    make_endpoint,
    oauth_bearer_config,
    offered_mechanisms,
)
from kledger.gateway.listeners.listener_plan import ListenerMistake, ListenerPlan
from kledger.gateway.listeners.listener_settings import ListenerSettings
from kledger.gateway.net.logins import Logins
from kledger.gateway.services import Services
from kledger.runtime.entropy import Entropy
from kledger.security.authorization_header import AuthorizationHeader
from kledger.security.password_logins import PasswordLogins
from kledger.security.sasl.mechanism import MakeMechanism
from kledger.security.sasl.mechanisms import Mechanisms
from kledger.security.sasl.oauth_bearer_state import OAUTHBEARER
from kledger.security.sasl.token_login import finding_tokens
from kledger.security.tls.distinguished_name import subject_of
from kledger.security.tls.pem_text import TlsMistake, without_password
from kledger.security.tls.principal_mapping import PrincipalMapping
from kledger.security.tls.tls_context import make_context
from kledger.security.tls.tls_settings import TlsMaterial, TlsSettings

if TYPE_CHECKING:
    from kledger.native.rpc.tls import TlsCredentials, TlsTexts

logger = logging.getLogger(__name__)


class ListenerSecurity:
    """TLS and logins of all listeners of one server.

    Attributes:
        endpoints: the Kafka listeners, in the order of their plans.
        logins: of the native and the admin listener.
    """

    def __init__(
        self,
        config: GatewayConfig,
        plans: Sequence[ListenerPlan],
        entropy: Entropy,
        *,
        has_tls: bool,
    ) -> None:
        """Read the settings; the arguments are those of `ListenerLogins`.

        Raises:
            ListenerMistake: a setting cannot work.
        """
        self._mechanisms = Mechanisms(entropy)
        self.endpoints = [make_endpoint(config, each, self._mechanisms) for each in plans]
        self.logins = ListenerLogins(config, plans, self._mechanisms, has_tls=has_tls)

    async def open(self, services: Services) -> None:
        """Give the mechanisms what they need of the store, and load the keys of access tokens.

        Raises:
            ListenerMistake: the keys cannot be loaded.
        """
        self._mechanisms.users = services.users
        self._mechanisms.find_token = finding_tokens(services.delegation_tokens)
        try:
            await self._mechanisms.open_keys(
                clock=services.clock,
                supervisor=services.supervisor,
                pool=services.store.compute_pool,
            )
        except ValueError as error:
            raise ListenerMistake(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None


class ListenerLogins:
    """How clients of the two listeners log in.

    Attributes:
        tls: of the native listener; None: its connections are not encrypted.
    """

    def __init__(
        self,
        config: GatewayConfig,
        plans: Sequence[ListenerPlan],
        mechanisms: Mechanisms,
        *,
        has_tls: bool,
    ) -> None:
        """Read the settings.

        Args:
            config: has them.
            plans: the Kafka listeners, whose users these are.
            mechanisms: of the server.
            has_tls: whether connections of the native listener are encrypted.

        Raises:
            ListenerMistake: a setting cannot work.
        """
        self._given_users = given_users(config, plans)
        self._bearer = _bearer(config, plans, mechanisms)
        self.tls: TlsSettings | None = None
        try:
            self._mapping = PrincipalMapping(config.ssl_principal_mapping_rules)
            if has_tls:
                self.tls = TlsSettings.read(ListenerSettings(config, "").text)
                _checked(self.tls, self.tls.material())
        except TlsMistake as error:
            raise ListenerMistake(f"native.tls: {error}") from None
        except ValueError as error:
            raise ListenerMistake(f"ssl.principal.mapping.rules: {error}") from None

    def header_logins(
        self, listener: str, services: Services, logins: Logins
    ) -> AuthorizationHeader:
        """Return what checks the headers of one listener."""
        return AuthorizationHeader(
            listener,
            passwords=PasswordLogins(services.users, self._given_users, services.delegation_tokens),
            bearer=self._bearer,
            limits=logins,
            clock=services.clock,
        )

    def name_of_certificate(self, certificate: bytes) -> str | None:
        """Return the user of a certificate in DER; None: there is none. Raises ValueError."""
        return self._mapping.name_of(subject_of(certificate))

    def tls_credentials(self) -> "TlsCredentials | None":
        """Return the credentials of the native listener; None: it has no TLS."""
        # gRPC takes longer to load than everything else together.
        from kledger.native.rpc.tls import TlsCredentials

        if self.tls is None:
            return None
        if self.tls.client_auth == "requested":
            logger.warning(
                "native listener: ssl.client.auth=requested is not supported there; "
                "clients are not asked for certificates"
            )
        return TlsCredentials(
            _reading(self.tls), requires_certificate=self.tls.client_auth == "required"
        )


def _bearer(
    config: GatewayConfig, plans: Sequence[ListenerPlan], mechanisms: Mechanisms
) -> MakeMechanism | None:
    """Return what checks access tokens: as the first Kafka listener does that takes them.

    Without one, by the settings that have no prefix, if they name keys.
    """
    for plan in plans:
        settings = ListenerSettings(config, plan.name)
        if OAUTHBEARER in offered_mechanisms(plan, settings):
            return mechanisms.make_oauth_bearer(oauth_bearer_config(settings))
    if not config.sasl_oauthbearer_jwks_endpoint_url:
        return None
    try:
        return mechanisms.make_oauth_bearer(oauth_bearer_config(ListenerSettings(config, "")))
    except ValueError as error:
        raise ListenerMistake(str(error)) from None


def _reading(settings: TlsSettings) -> Callable[[], "TlsTexts | None"]:
    """Return what reads keys and certificates when their files have changed."""
    state: list[object] = [None]

    def read() -> "TlsTexts | None":
        files = settings.file_states()
        if [files] == state:
            return None
        state[:] = [files]
        return _checked(settings, settings.material())

    return read


def _checked(settings: TlsSettings, material: TlsMaterial) -> "TlsTexts":
    """Return the texts for gRPC, which would refuse wrong ones without saying why.

    Raises:
        TlsMistake: key and certificate do not fit.
    """
    from kledger.native.rpc.tls import TlsTexts

    make_context(settings, material)
    key = without_password(material.key, material.password)
    is_asked = settings.client_auth == "required"
    return TlsTexts(key=key, chain=material.chain, trusted=material.trusted if is_asked else "")

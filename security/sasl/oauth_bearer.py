"""OAuthBearer: what all logins with OAUTHBEARER share, by the settings of their listener.

Rule: without keys, issuer and audience the server does not start. Unsecured tokens are accepted
only where the setting names the class that Apache Kafka has for development.
Must not know: connections, other mechanisms.
"""

import logging
from dataclasses import dataclass
from typing import Final

from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.security.json_web_token import ClaimRules
from kledger.security.sasl.oauth_bearer_state import OAuthBearerState, TokenKeys

logger = logging.getLogger(__name__)

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
VALIDATOR_HANDLER: Final = f"{_PACKAGE}OAuthBearerValidatorCallbackHandler"
UNSECURED_HANDLERS: Final = (
    f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    f"{_PACKAGE}OAuthBearerUnsecuredValidatorCallbackHandler",
)
"""Values of `sasl.server.callback.handler.class` that let tokens be unsecured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthBearerConfig:
    """The settings of the mechanism, under Kafka's names without `sasl.oauthbearer.`.

    Attributes:
        handler_class: `sasl.server.callback.handler.class`; empty: tokens are validated.
    """

    jwks_endpoint_url: str = ""
    expected_issuer: str = ""
    expected_audience: tuple[str, ...] = ()
    clock_skew_seconds: int = 30
    sub_claim_name: str = "sub"
    jwks_endpoint_refresh_ms: int = 3_600_000
    handler_class: str = ""

    @property
    def allows_unsecured(self) -> bool:
        """Whether tokens have no signatures."""
        return self.handler_class in UNSECURED_HANDLERS

    def check(self) -> None:
        """Refuse settings with which no token, or any token, would be accepted.

        Raises:
            ValueError: one line that names the setting.
        """
        if self.allows_unsecured:
            return
        if self.handler_class not in ("", VALIDATOR_HANDLER):
            raise ValueError(
                f"sasl.server.callback.handler.class: expected {VALIDATOR_HANDLER}, "
                f"got {self.handler_class!r}; no classes are loaded"
            )
        for name, value in (
            ("jwks.endpoint.url", self.jwks_endpoint_url),
            ("expected.issuer", self.expected_issuer),
            ("expected.audience", any(self.expected_audience)),
        ):
            if not value:
                raise ValueError(f"sasl.oauthbearer.{name}: OAUTHBEARER needs it")
        # Late: the library of keys takes longer to load than the server to start.
        from kledger.security.key_set_source import check_url

        try:
            check_url(self.jwks_endpoint_url)
        except ValueError as error:
            raise ValueError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None

    @property
    def claim_rules(self) -> ClaimRules:
        """What tokens must have."""
        return ClaimRules(
            issuer=self.expected_issuer or None,
            audiences=frozenset(filter(None, self.expected_audience)),
            clock_skew_s=self.clock_skew_seconds,
            principal_claim=self.sub_claim_name,
        )


class OAuthBearer:
    """The mechanism of the listeners with the same settings; `mechanism` begins a login."""

    def __init__(self, config: OAuthBearerConfig) -> None:
        """Check the settings.

        Raises:
            ValueError: one line that names the setting.
        """
        config.check()
        self._config = config
        self._rules = config.claim_rules
        self._keys: TokenKeys | None = None
        self._is_open = False

    async def open(self, *, clock: Clock, supervisor: Supervisor, pool: BlockingRunner) -> None:
        """Load the keys, and keep them up to date from now on.

        Raises:
            ValueError: there are no keys; one line for the user.
        """
        config = self._config
        if config.allows_unsecured:
            logger.warning(
                "OAUTHBEARER accepts unsecured tokens: every client can be any user "
                "(sasl.server.callback.handler.class)"
            )
        else:
            # Late: the library of keys takes longer to load than the server to start.
            from kledger.security.key_set_source import KeySetSource, fetching_with

            keys = KeySetSource(
                config.jwks_endpoint_url,
                refresh_ms=config.jwks_endpoint_refresh_ms,
                clock=clock,
                supervisor=supervisor,
                fetch=fetching_with(pool),
            )
            await keys.start()
            self._keys = keys
        self._is_open = True

    def mechanism(self, now_ms: int) -> OAuthBearerState:
        """Begin a login at a time of the wall clock."""
        assert self._is_open, "a login before the keys are loaded"
        return OAuthBearerState(self._keys, self._rules, now_ms)

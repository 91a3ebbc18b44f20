"""Mechanisms: which a listener offers, and how a login with one begins.

Rule: every login gets a new state, with a new nonce. What the mechanisms need of the server (users,
tokens, keys) is passed to the constructor.
Must not know: connections, the settings of listeners.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from kledger.security.credentials import ScramMechanism
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import MakeMechanism, SaslMechanism
from kledger.security.sasl.oauth_bearer import OAuthBearer, OAuthBearerConfig
from kledger.security.sasl.plain_state import PlainState
from kledger.security.sasl.scram_state import KnownCredential, ScramState

if TYPE_CHECKING:
    from kledger.runtime.blocking import BlockingRunner
    from kledger.runtime.clock import Clock
    from kledger.runtime.entropy import Entropy
    from kledger.runtime.tasks import Supervisor
    from kledger.security.users import Users

NONCE_BYTES: Final = 24

FindToken = Callable[[ScramMechanism, str, int], KnownCredential | None]
"""Returns the credential of a delegation token by its id, at a time of the wall clock in ms."""


class Mechanisms:
    """How logins begin on one server.

    Attributes:
        users: whose credentials are stored; given before the first login begins.
        find_token: for logins with delegation tokens; None: there are none.
    """

    def __init__(self, entropy: "Entropy", users: "Users | None" = None) -> None:
        self.users = users
        self._entropy = entropy
        self.find_token: FindToken | None = None
        self._oauth_bearer: dict[OAuthBearerConfig, OAuthBearer] = {}

    def make_plain(self, given_users: Mapping[str, str]) -> MakeMechanism:
        """Return what begins logins with PLAIN.

        Args:
            given_users: passwords by user, of the settings.
        """

        def make(_now_ms: int) -> SaslMechanism:
            return PlainState(given_users, self._known_users.find_plain)

        return make

    def make_scram(self, mechanism: ScramMechanism) -> MakeMechanism:
        """Return what begins logins with SCRAM."""

        def make(now_ms: int) -> SaslMechanism:
            return ScramState(
                mechanism,
                partial(self._find_scram, mechanism, now_ms),
                server_nonce=self._entropy.token(NONCE_BYTES).hex(),
            )

        return make

    def make_oauth_bearer(self, config: OAuthBearerConfig) -> MakeMechanism:
        """Return what begins logins with OAUTHBEARER, once `open_keys` has loaded its keys.

        Raises:
            ValueError: one line that names the setting at fault.
        """
        if config not in self._oauth_bearer:
            self._oauth_bearer[config] = OAuthBearer(config)
        return self._oauth_bearer[config].mechanism

    async def open_keys(
        self, *, clock: "Clock", supervisor: "Supervisor", pool: "BlockingRunner"
    ) -> None:
        """Load the keys of access tokens, and keep them up to date.

        Raises:
            ValueError: there are none; one line for the user.
        """
        for each in self._oauth_bearer.values():
            await each.open(clock=clock, supervisor=supervisor, pool=pool)

    @property
    def _known_users(self) -> "Users":
        assert self.users is not None, "a login before the users are known"
        return self.users

    def _find_scram(
        self, mechanism: ScramMechanism, now_ms: int, user: str, is_token: bool
    ) -> KnownCredential:
        found: KnownCredential | None = None
        if not is_token:
            credential = self._known_users.find(user, mechanism.sasl_name)
            found = None if credential is None else KnownCredential(credential, Principal(user))
        elif self.find_token is not None:
            found = self.find_token(mechanism, user, now_ms)
        return found or KnownCredential(self._known_users.decoy(user, mechanism), None)

"""PasswordLogins: logins with user and password outside of SASL, for gRPC and HTTP.

Rule: the users are those of all mechanisms: PLAIN's of the settings, every stored one, and
delegation tokens, whose owners they stand for. Hashing is work for a thread, also for a user that
does not exist, so that failures take the same time.
Must not know: how a client sends its password, messages.
"""

import hmac
from collections.abc import Mapping
from functools import partial
from typing import Final

from kledger.security.credentials import (
    BY_SASL_NAME,
    PASSWORD_BYTES_MAX,
    PLAIN,
    PLAIN_HASH,
    USER_NAME_MAX,
    ScramCredential,
    ScramMechanism,
    is_password_of,
)
from kledger.security.delegation_tokens import DelegationTokens
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed, NeedWork, Step
from kledger.security.users import Users

FAILURE: Final = "Authentication failed: Invalid username or password"
_PREFERRED: Final = (PLAIN, ScramMechanism.SHA_512.sasl_name, ScramMechanism.SHA_256.sasl_name)


class PasswordLogins:
    """The users of one server."""

    def __init__(
        self, users: Users, given_users: Mapping[str, str], tokens: DelegationTokens
    ) -> None:
        """Prepare.

        Args:
            users: the stored ones.
            given_users: passwords by user, of the settings.
            tokens: the stored ones; the user is the token's id, the password its HMAC in Base64.
        """
        self._users = users
        self._given_users = given_users
        self._tokens = tokens

    def begin(self, user: str, password: str, now_ms: int) -> Step:
        """Decide on a password; `now_ms` since 1970 decides whether a token has expired.

        Raises:
            AuthenticationFailed: it is wrong, or there is no such user.
        """
        if not user or len(user) > USER_NAME_MAX or len(password) > PASSWORD_BYTES_MAX:
            raise AuthenticationFailed(FAILURE)
        given = self._given_users.get(user)
        if given is not None and hmac.compare_digest(given.encode(), password.encode()):
            return Authenticated(principal=Principal(user))
        token = self._tokens.with_password(user, password, now_ms)
        if token is not None:
            return Authenticated(
                principal=token.owner, expires_at_ms=token.expiry_ms, is_token=True
            )
        mechanism, credential, is_user = self._credential(user)
        return NeedWork(
            partial(is_password_of, mechanism, credential, password),
            lambda is_right: _decided(user, is_right=is_right and is_user),
        )

    def _credential(self, user: str) -> tuple[ScramMechanism, ScramCredential, bool]:
        """Return the credential to compare with, and whether it is one or a decoy."""
        stored = self._users.credentials_of(user)
        for name in _PREFERRED:
            if name in stored:
                return BY_SASL_NAME.get(name, PLAIN_HASH), stored[name], True
        return PLAIN_HASH, self._users.decoy(user, PLAIN_HASH), False


def _decided(user: str, *, is_right: bool) -> Step:
    if not is_right:
        raise AuthenticationFailed(FAILURE)
    return Authenticated(principal=Principal(user))

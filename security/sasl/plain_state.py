"""PLAIN: a login with one message, `authzid NUL authcid NUL password` (RFC 4616).

Rule: pure. Passwords of the settings are compared in constant time; any other one is hashed in a
thread, also for a user that does not exist, so that failures take the same time. Texts of failures
are Kafka's.
Must not know: connections, where credentials are stored.
"""

import hmac
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kledger.security.credentials import (
    PASSWORD_BYTES_MAX,
    PLAIN,
    PLAIN_HASH,
    USER_NAME_MAX,
    ScramCredential,
    is_password_of,
)
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    MalformedToken,
    NeedWork,
    Step,
)

FIELD_COUNT: Final = 3
OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class PlainState:
    """One login with PLAIN."""

    __slots__ = ("_find", "_given_users")

    def __init__(
        self, given_users: Mapping[str, str], find: Callable[[str], tuple[ScramCredential, bool]]
    ) -> None:
        """Begin.

        Args:
            given_users: passwords by user, of the settings.
            find: returns the stored credential of a user, and whether the user exists; a decoy
                for one that does not.
        """
        self._given_users = given_users
        self._find = find

    def evaluate(self, token: bytes) -> Step:
        """Decide on the only message."""
        user, password = _parsed(token)
        given = self._given_users.get(user)
        if given is not None and hmac.compare_digest(given.encode(), password.encode()):
            return Authenticated(principal=Principal(user))
        credential, is_user = self._find(user)
        return NeedWork(
            partial(is_password_of, PLAIN_HASH, credential, password),
            lambda is_right: _decided(user, is_right=is_right and is_user),
        )


def _decided(user: str, *, is_right: bool) -> Step:
    if not is_right:
        raise AuthenticationFailed("Authentication failed: Invalid username or password")
    return Authenticated(principal=Principal(user))


def _parsed(token: bytes) -> tuple[str, str]:
    """Return user and password. What is not UTF-8 becomes a character that no user has."""
    fields = token.decode(errors="replace").split("\0")
    if len(fields) != FIELD_COUNT:
        raise AuthenticationFailed(
            f"Invalid SASL/{PLAIN} response: expected {FIELD_COUNT} tokens, got {len(fields)}"
        )
    authorization_id, user, password = fields
    if not user:
        raise AuthenticationFailed("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("Authentication failed: password not specified")
    if authorization_id not in ("", user):
        raise AuthenticationFailed(OTHER_AUTHORIZATION_ID)
    if len(user) > USER_NAME_MAX or len(password) > PASSWORD_BYTES_MAX:
        raise MalformedToken(f"{PLAIN}: user name or password is too long")
    return user, password

"""OAUTHBEARER: a login with an access token (RFC 7628, KIP-255).

    client  n,[a=user],^Aauth=Bearer TOKEN^A[key=value^A…]^A        ^A is the byte 1
    server  nothing, with the success; or {"status":"invalid_token"}
    client  ^A                                                       then the login has failed

Rule: pure. Signatures are verified in a thread. The client only gets that its token was refused;
the cause of the exception says why. A malformed message is a failure like any other, as with
Apache Kafka. Extensions are checked for their form and not used.
Must not know: connections, clocks, where keys come from.
"""

import re
from functools import partial
from typing import Final, Protocol

from kledger.security.json_web_token import (
    ASYMMETRIC_ALGORITHMS,
    TOKEN_BYTES_MAX,
    AccessToken,
    ClaimRules,
    InvalidAccessToken,
    TokenHeader,
    accept_claims,
    read_header,
    unsecured_payload,
)
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    MalformedToken,
    NeedWork,
    Step,
    invalid_credentials,
)

OAUTHBEARER: Final = "OAUTHBEARER"
MESSAGE_BYTES_MAX: Final = 2 * TOKEN_BYTES_MAX
EXTENSIONS_MAX: Final = 64
REFUSAL: Final = '{"status":"invalid_token"}'
END_OF_FAILURE: Final = b"\x01"
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authorization_id>[^,\x01]*))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)+)\x01"
)


class TokenKey(Protocol):
    """A key that verifies tokens."""

    def verified_payload(self, token: str, algorithm: str) -> bytes:
        """Return the claims of a token; runs in a thread. Raises InvalidAccessToken."""
        ...


class TokenKeys(Protocol):
    """The keys of the issuer, as they are now."""

    def find(self, header: TokenHeader) -> TokenKey | None:
        """Return the key of a token; None: there is none, which leads to a refresh."""
        ...


class OAuthBearerState:
    """One login with OAUTHBEARER."""

    __slots__ = ("_keys", "_now_ms", "_refusal", "_rules")

    def __init__(self, keys: TokenKeys | None, rules: ClaimRules, now_ms: int) -> None:
        """Begin.

        Args:
            keys: None: tokens are unsecured, which is for development alone.
            rules: what the server demands of claims.
            now_ms: since 1970.
        """
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms
        self._refusal: InvalidAccessToken | None = None

    def evaluate(self, token: bytes) -> Step:
        """Decide on the token of the client, or on the byte with which it ends a failed login."""
        if self._refusal is not None:
            if token != END_OF_FAILURE:
                raise _unreadable("expected the end of the failed login")
            raise AuthenticationFailed(REFUSAL) from self._refusal
        authorization_id, access_token = _parsed(token)
        try:
            return self._checked(authorization_id, access_token)
        except InvalidAccessToken as error:
            return self._refused(error)

    def _checked(self, authorization_id: str, access_token: str) -> Step:
        if self._keys is None:
            return self._accepted(authorization_id, unsecured_payload(access_token))
        header = read_header(access_token)
        if header.algorithm not in ASYMMETRIC_ALGORITHMS:
            raise InvalidAccessToken("header: expected an asymmetric algorithm")
        key = self._keys.find(header)
        if key is None:
            raise InvalidAccessToken("header: no key has this id and algorithm")
        return NeedWork(
            partial(_payload_or_error, key, access_token, header.algorithm),
            partial(self._verified, authorization_id),
        )

    def _verified(self, authorization_id: str, outcome: bytes | InvalidAccessToken) -> Step:
        if isinstance(outcome, InvalidAccessToken):
            return self._refused(outcome)
        try:
            return self._accepted(authorization_id, outcome)
        except InvalidAccessToken as error:
            return self._refused(error)

    def _accepted(self, authorization_id: str, payload: bytes) -> Step:
        accepted: AccessToken = accept_claims(payload, self._rules, self._now_ms)
        if authorization_id not in ("", accepted.principal_name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return Authenticated(
            principal=Principal(accepted.principal_name), expires_at_ms=accepted.expires_at_ms
        )

    def _refused(self, error: InvalidAccessToken) -> Challenge:
        self._refusal = error
        return Challenge(REFUSAL.encode())


def initial_response(access_token: str) -> bytes:
    """Return the message with which a client presents a token."""
    return b"n,,\x01auth=Bearer " + access_token.encode() + b"\x01\x01"


def _unreadable(reason: str) -> AuthenticationFailed:
    failure = invalid_credentials(OAUTHBEARER)
    failure.__cause__ = MalformedToken(f"{OAUTHBEARER}: {reason}")
    return failure


def _payload_or_error(
    key: TokenKey, access_token: str, algorithm: str
) -> bytes | InvalidAccessToken:
    try:
        return key.verified_payload(access_token, algorithm)
    except InvalidAccessToken as error:
        return error


def _parsed(token: bytes) -> tuple[str, str]:
    """Return the authorization id and the access token."""
    if len(token) > MESSAGE_BYTES_MAX:
        raise MalformedToken(f"{OAUTHBEARER}: {len(token)} bytes, most are {MESSAGE_BYTES_MAX}")
    # What is not UTF-8 becomes a character that no message has.
    message = _FIRST.fullmatch(token.decode(errors="replace"))
    if message is None:
        raise _unreadable("the message has another form")
    pairs = [each.partition("=") for each in message["pairs"][:-1].split("\x01")]
    if len(pairs) > EXTENSIONS_MAX:
        raise _unreadable(f"{len(pairs)} extensions, most are {EXTENSIONS_MAX}")
    values = {name: value for name, _, value in pairs}
    if len(values) < len(pairs):
        raise _unreadable("an extension stands twice")
    scheme, _, access_token = values.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not access_token.strip():
        raise _unreadable("expected a token of the scheme Bearer")
    authorization_id = (message["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, access_token.strip()

"""The client's side of a login: the tokens that it sends, and what it demands of the server.

    SCRAM        client  n,,n=user,r=NONCE                    (RFC 5802; sasl/scram_state.py has
                 server  r=NONCE+ITS,s=salt,i=iterations       the server's side)
                 client  c=biws,r=NONCE+ITS,p=proof
                 server  v=signature
    PLAIN        client  NUL user NUL password                (RFC 4616)
    OAUTHBEARER  client  n,,^Aauth=Bearer TOKEN^A^A           (RFC 7628)

Rule: pure. A login is a generator: it yields the client's tokens, gets the server's, and returns
when the server has proved what it has to. A server of SCRAM that does not know the password is
refused, so it cannot pass for the right one.
Must not know: connections, Kafka's requests, randomness.
"""

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Generator
from typing import Final, TypeAlias, assert_never

from kledger.security.client.client_security import (
    AccessTokenLogin,
    ClientLogin,
    PasswordLogin,
)
from kledger.security.credentials import BY_SASL_NAME, ITERATIONS_MIN, PLAIN, ScramMechanism

ITERATIONS_ACCEPTED_MAX: Final = 1_000_000
"""Bounds what a server can let a client compute: about a second."""
_CHALLENGE: Final = re.compile(
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})(?:,.*)?"
)
_HEADER: Final = "n,,"
_END_OF_FAILURE: Final = b"\x01"

LoginTokens: TypeAlias = Generator[bytes, bytes, None]
"""Yields what the client sends, gets what the server answers."""


class ServerRefused(Exception):
    """The server is the wrong one, or violates the protocol; the client sends nothing more."""


def login_tokens(login: ClientLogin, nonce: str) -> LoginTokens:
    """Begin a login.

    Args:
        login: what the client has.
        nonce: random, of this login only, printable and without commas.

    Raises:
        ServerRefused: while iterating: an answer of the server is wrong.
    """
    match login:
        case AccessTokenLogin():
            return _oauth_bearer(login)
        case PasswordLogin(mechanism=mechanism) if mechanism == PLAIN:
            return _plain(login)
        case PasswordLogin():
            return _scram(BY_SASL_NAME[login.mechanism], login, nonce)
        case _:
            assert_never(login)


def _plain(login: PasswordLogin) -> LoginTokens:
    yield f"\0{login.user}\0{login.password}".encode()


def _oauth_bearer(login: AccessTokenLogin) -> LoginTokens:
    refusal = yield f"{_HEADER}\x01auth=Bearer {login.token}\x01\x01".encode()
    if refusal:
        # The server says why, and ends the login when it gets this.
        yield _END_OF_FAILURE


def _scram(mechanism: ScramMechanism, login: PasswordLogin, nonce: str) -> LoginTokens:
    user = login.user.replace("=", "=3D").replace(",", "=2C")
    extension = ",tokenauth=true" if login.is_delegation_token else ""
    bare = f"n={user},r={nonce}{extension}"
    challenge = (yield f"{_HEADER}{bare}".encode()).decode(errors="replace")
    salt, iterations, whole_nonce = _parsed(challenge, nonce)
    salted = mechanism.salted_password(login.password, salt, iterations)
    client_key = mechanism.keyed_hash(salted, b"Client Key")
    unproved = f"c={_encoded(_HEADER.encode())},r={whole_nonce}"
    signed = f"{bare},{challenge},{unproved}".encode()
    signature = mechanism.keyed_hash(mechanism.hash(client_key), signed)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    answer = yield f"{unproved},p={_encoded(proof)}".encode()
    server_key = mechanism.keyed_hash(salted, b"Server Key")
    expected = f"v={_encoded(mechanism.keyed_hash(server_key, signed))}"
    if not hmac.compare_digest(expected.encode(), answer):
        raise ServerRefused("the server did not prove that it knows the password")


def _parsed(challenge: str, nonce: str) -> tuple[bytes, int, str]:
    """Return salt, iterations and the nonce of both sides."""
    found = _CHALLENGE.fullmatch(challenge)
    if found is None or not found["nonce"].startswith(nonce) or found["nonce"] == nonce:
        raise ServerRefused("the server's challenge is none of this login")
    iterations = int(found["iterations"])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_ACCEPTED_MAX:
        raise ServerRefused(
            f"the server wants {iterations} iterations, expected {ITERATIONS_MIN} to"
            f" {ITERATIONS_ACCEPTED_MAX}"
        )
    try:
        return b64decode(found["salt"], validate=True), iterations, found["nonce"]
    except ValueError:
        raise ServerRefused("the server's salt is not in Base64") from None


def _encoded(data: bytes) -> str:
    return b64encode(data).decode("ascii")

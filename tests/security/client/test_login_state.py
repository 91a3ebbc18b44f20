"""The client's side of logins, against the RFC's example and the server's own states."""

from base64 import b64encode

import pytest

from kledger.security.client.client_security import AccessTokenLogin, ClientLogin, PasswordLogin
from kledger.security.client.login_state import (
    ITERATIONS_ACCEPTED_MAX,
    LoginTokens,
    ServerRefused,
    login_tokens,
)
from kledger.security.credentials import ScramMechanism, make_credential
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import Authenticated, Challenge
from kledger.security.sasl.scram_state import KnownCredential, ScramState

NONCE, SALT = "rOprNGfwEbeRWgbNEkqO", b"salt of a user"


def scram(
    user: str = "user",
    password: str = "pencil",
    mechanism: ScramMechanism = ScramMechanism.SHA_256,
    *,
    is_delegation_token: bool = False,
) -> PasswordLogin:
    return PasswordLogin(
        mechanism=mechanism.sasl_name,
        user=user,
        password=password,
        is_delegation_token=is_delegation_token,
    )


def begin(login: ClientLogin) -> tuple[LoginTokens, bytes]:
    """Begin a login; return it with its first token."""
    tokens = login_tokens(login, NONCE)
    return tokens, next(tokens)


def is_over(tokens: LoginTokens, answer: bytes = b"") -> bool:
    try:
        tokens.send(answer)
    except StopIteration:
        return True
    return False


def test_example_of_rfc_7677() -> None:
    tokens, first = begin(scram())
    assert b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO" == first
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = tokens.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode() == final
    assert is_over(tokens, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["ann", "CN=ann,O=x", "==,,"])
@pytest.mark.parametrize("is_token", [False, True])
def test_scram_opens_what_the_server_has_stored(
    mechanism: ScramMechanism, user: str, is_token: bool
) -> None:
    password = "p=ä,\0b"
    credential = make_credential(mechanism, password, SALT, 4096)
    asked: list[tuple[str, bool]] = []

    def find(name: str, named_token: bool) -> KnownCredential:
        asked.append((name, named_token))
        return KnownCredential(credential, Principal(name))

    server = ScramState(mechanism, find, server_nonce="of-the-server")
    tokens, first = begin(scram(user, password, mechanism, is_delegation_token=is_token))
    challenge = server.evaluate(first)
    assert isinstance(challenge, Challenge)
    success = server.evaluate(tokens.send(challenge.token))
    assert isinstance(success, Authenticated)
    assert is_over(tokens, success.token)
    assert [(user, is_token)] == asked


@pytest.mark.parametrize("answer", [b"", b"v=", b"v=" + b64encode(b"x" * 32), b"e=other-error"])
def test_a_server_that_does_not_know_the_password_is_refused(answer: bytes) -> None:
    tokens, _ = begin(scram())
    tokens.send(f"r={NONCE}more,s={b64encode(SALT).decode()},i=4096".encode())
    with pytest.raises(ServerRefused, match="did not prove"):
        tokens.send(answer)


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        ("", "none of this login"),
        ("r={nonce}x,s=c2FsdA==", "none of this login"),
        ("r=another,s=c2FsdA==,i=4096", "none of this login"),
        ("r={nonce},s=c2FsdA==,i=4096", "none of this login"),
        ("m=x,r={nonce}x,s=c2FsdA==,i=4096", "none of this login"),
        ("r={nonce}x,s=c2FsdA,i=4096", "Base64"),
        ("r={nonce}x,s=c2FsdA==,i=4095", "4095 iterations"),
        (f"r={{nonce}}x,s=c2FsdA==,i={ITERATIONS_ACCEPTED_MAX + 1}", "1000001 iterations"),
    ],
)
def test_a_challenge_of_another_form_or_cost_is_refused(challenge: str, message: str) -> None:
    tokens, _ = begin(scram())
    with pytest.raises(ServerRefused, match=message):
        tokens.send(challenge.format(nonce=NONCE).encode())


def test_plain_is_one_token() -> None:
    tokens, first = begin(PasswordLogin(mechanism="PLAIN", user="ann", password="pä"))
    assert "\0ann\0pä".encode() == first
    assert is_over(tokens)


def test_an_access_token_that_is_refused_gets_the_end_of_the_login() -> None:
    login = AccessTokenLogin(mechanism="OAUTHBEARER", token="a.b.c")
    tokens, first = begin(login)
    assert b"n,,\x01auth=Bearer a.b.c\x01\x01" == first
    assert is_over(tokens)
    tokens, _ = begin(login)
    assert b"\x01" == tokens.send(b'{"status":"invalid_token"}')
    assert is_over(tokens)

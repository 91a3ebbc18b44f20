"""PLAIN as RFC 4616 and Apache Kafka have it."""

import pytest

from kledger.security.credentials import (
    PLAIN_HASH,
    ScramCredential,
    decoy_credential,
    make_credential,
)
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    MalformedToken,
    NeedWork,
    Step,
)
from kledger.security.sasl.plain_state import PlainState

STORED = make_credential(PLAIN_HASH, "stored-secret", b"s" * 32, 4096)


def find(user: str) -> tuple[ScramCredential, bool]:
    if user == "bob":
        return STORED, True
    return decoy_credential(PLAIN_HASH, user, b"secret"), False


def login(token: bytes) -> Step:
    """Return the last step of a login, with the work done at once."""
    step = PlainState({"alice": "alice-secret"}, find).evaluate(token)
    return step.resume(step.run()) if isinstance(step, NeedWork) else step


@pytest.mark.parametrize(
    "token",
    [b"\0alice\0alice-secret", b"alice\0alice\0alice-secret", b"\0bob\0stored-secret"],
)
def test_the_right_password_opens(token: bytes) -> None:
    user = token.split(b"\0")[1].decode()
    assert Authenticated(principal=Principal(user)) == login(token)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0bob\0wrong", "Invalid username or password"),
        (b"\0carol\0alice-secret", "Invalid username or password"),
        (b"\0\0alice-secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0alice-secret", "authorization id that is different"),
        (b"alice\0alice-secret", "expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "expected 3 tokens, got 4"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0al\xff\0x", "Invalid username or password"),
    ],
)
def test_anything_else_fails_with_the_words_of_kafka(token: bytes, message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message):
        login(token)


def test_every_failure_of_a_named_user_costs_the_same_hash() -> None:
    """A password that is compared at once when it is wrong would tell which users there are."""
    for token in (b"\0alice\0wrong", b"\0bob\0wrong", b"\0carol\0wrong"):
        assert isinstance(PlainState({"alice": "alice-secret"}, find).evaluate(token), NeedWork)


@pytest.mark.parametrize("token", [b"\0" + b"a" * 1025 + b"\0x", b"\0a\0" + b"x" * 70_000])
def test_what_no_client_sends_ends_the_login_without_an_answer(token: bytes) -> None:
    with pytest.raises(MalformedToken):
        login(token)


def test_the_credential_of_a_decoy_does_not_open() -> None:
    """Only the store says that there is such a user, whatever its decoy would compare."""
    state = PlainState({}, lambda _user: (STORED, False))
    step = state.evaluate(b"\0bob\0stored-secret")
    assert isinstance(step, NeedWork)
    assert step.run()
    with pytest.raises(AuthenticationFailed):
        step.resume(True)

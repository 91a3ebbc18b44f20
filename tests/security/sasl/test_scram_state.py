"""SCRAM against the examples of its RFCs, and against clients that cheat."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import NamedTuple

import pytest

from kledger.security.credentials import ScramMechanism, decoy_credential, make_credential
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    MalformedToken,
)
from kledger.security.sasl.scram_state import KnownCredential, ScramState

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SALT = b"a salt of sixteen"
SERVER_NONCE = "of-the-server"


class Client(NamedTuple):
    """A client of SCRAM, independent of the code that is tested."""

    mechanism: ScramMechanism = SHA_256
    user: str = "alice"
    password: str = "pencil"
    header: str = "n,,"
    extensions: str = ""

    @property
    def bare(self) -> str:
        return f"n={self.user},r=of-the-client{self.extensions}"

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, challenge: bytes, *, header: str | None = None, nonce: str = "") -> bytes:
        """Return the second message, optionally with another header or nonce, signed as it is."""
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        bound = b64encode((self.header if header is None else header).encode()).decode()
        unproved = f"c={bound},r={nonce or fields['r']}"
        name = self.mechanism.hash_name
        salted = hashlib.pbkdf2_hmac(
            name, self.password.encode(), b64decode(fields["s"]), int(fields["i"])
        )
        key = hmac.new(salted, b"Client Key", name).digest()
        signed = f"{self.bare},{challenge.decode()},{unproved}".encode()
        signature = hmac.new(hashlib.new(name, key).digest(), signed, name).digest()
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproved},p={b64encode(proof).decode()}".encode()


def find(mechanism: ScramMechanism, user: str, *, is_token: bool) -> KnownCredential:
    if (user, is_token) == ("alice", False):
        credential = make_credential(mechanism, "pencil", SALT, 4096)
        return KnownCredential(credential, Principal("alice"))
    if (user, is_token) == ("token-id", True):
        credential = make_credential(mechanism, "pencil", SALT, 4096)
        return KnownCredential(credential, Principal("owner"), expires_at_ms=99)
    return KnownCredential(decoy_credential(mechanism, user, b"secret"), None)


def begin(mechanism: ScramMechanism = SHA_256) -> ScramState:
    return ScramState(
        mechanism,
        lambda user, is_token: find(mechanism, user, is_token=is_token),
        server_nonce=SERVER_NONCE,
    )


def challenge_of(state: ScramState, token: bytes) -> bytes:
    step = state.evaluate(token)
    assert isinstance(step, Challenge)
    return step.token


def test_example_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = make_credential(SHA_256, "pencil", salt, 4096)
    state = ScramState(
        SHA_256,
        lambda user, _: KnownCredential(credential, Principal(user)),
        server_nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    assert state.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert state.evaluate(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == Authenticated(
        principal=Principal("user"), token=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=alice,"])
def test_the_right_password_opens(mechanism: ScramMechanism, header: str) -> None:
    state, client = begin(mechanism), Client(mechanism, header=header)
    step = state.evaluate(client.final(challenge_of(state, client.first())))
    assert isinstance(step, Authenticated)
    assert Principal("alice") == step.principal
    assert not step.is_token


def test_escaped_names() -> None:
    credential = make_credential(SHA_256, "pencil", SALT, 4096)
    state = ScramState(
        SHA_256,
        lambda user, _: KnownCredential(credential, Principal(user)),
        server_nonce=SERVER_NONCE,
    )
    client = Client(user="CN=3Dalice=2CO=3Dx")
    step = state.evaluate(client.final(challenge_of(state, client.first())))
    assert isinstance(step, Authenticated)
    assert Principal("CN=alice,O=x") == step.principal


def test_a_delegation_token_is_a_user_only_with_its_extension() -> None:
    state, client = begin(), Client(user="token-id", extensions=",tokenauth=true")
    step = state.evaluate(client.final(challenge_of(state, client.first())))
    assert isinstance(step, Authenticated)
    assert (Principal("owner"), True, 99) == (step.principal, step.is_token, step.expires_at_ms)
    for other in (
        Client(user="token-id"),
        Client(user="token-id", extensions=",tokenauth=false"),
        Client(user="alice", extensions=",tokenauth=true"),
    ):
        state = begin()
        final = other.final(challenge_of(state, other.first()))
        with pytest.raises(AuthenticationFailed):
            state.evaluate(final)


def test_an_unknown_user_gets_the_messages_of_a_wrong_password() -> None:
    failures = []
    for client in (Client(password="wrong"), Client(user="mallory")):
        state = begin()
        challenge = challenge_of(state, client.first())
        assert b",i=4096" in challenge
        with pytest.raises(AuthenticationFailed) as failed:
            state.evaluate(client.final(challenge))
        failures.append(str(failed.value))
    assert 1 == len(set(failures))


def test_the_proof_of_a_decoy_does_not_open() -> None:
    """A decoy that leaked would still be nobody's."""
    credential = make_credential(SHA_256, "pencil", SALT, 4096)
    state = ScramState(
        SHA_256, lambda _user, _: KnownCredential(credential, None), server_nonce=SERVER_NONCE
    )
    client = Client()
    final = client.final(challenge_of(state, client.first()))
    with pytest.raises(AuthenticationFailed):
        state.evaluate(final)


@pytest.mark.parametrize(
    "changed",
    [
        {"header": "y,,"},
        {"header": "n,a=alice,"},
        {"nonce": "of-the-client"},
        {"nonce": SERVER_NONCE},
        {"nonce": f"of-the-client{SERVER_NONCE}more"},
        {"nonce": f"another{SERVER_NONCE}"},
    ],
)
def test_another_header_or_nonce_fails_though_it_is_signed(changed: dict[str, str]) -> None:
    state, client = begin(), Client()
    final = client.final(challenge_of(state, client.first()), **changed)
    with pytest.raises(AuthenticationFailed):
        state.evaluate(final)


def test_another_authorization_id_fails() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id that is different"):
        begin().evaluate(Client(header="n,a=bob,").first())


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,n=alice",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=al=41ce,r=x",
        b"n,,n=alice,r=two words",
        b"n,,m=x,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"x,,n=alice,r=x",
        b"n,,n=alice,r=x,",
        b"\xff\xff",
        b"n,,n=alice,r=" + b"x" * 1025,
        b"n,,n=" + b"a" * 1025 + b",r=x",
    ],
)
def test_a_malformed_first_message_fails_as_a_wrong_password_does(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism SCRAM"):
        begin().evaluate(token)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final[:-1],
        lambda final: final + b",x=y",
        lambda final: final.replace(b",p=", b",p=!"),
        lambda final: final.replace(b"c=biws", b"c=biw"),
        lambda final: final.rpartition(b",p=")[0] + b",p=",
        lambda final: final.rpartition(b",p=")[0],
        lambda _final: b"",
    ],
)
def test_a_malformed_second_message_fails_as_a_wrong_password_does(
    change: Callable[[bytes], bytes],
) -> None:
    state, client = begin(), Client()
    final = client.final(challenge_of(state, client.first()))
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism SCRAM"):
        state.evaluate(change(final))


@pytest.mark.parametrize("proof", [b"x", b"x" * 31, b"x" * 33, b"x" * 64])
def test_a_proof_of_another_length_ends_the_login_without_an_answer(proof: bytes) -> None:
    """If only the sent bytes of a proof were compared, it could be guessed byte by byte."""
    state, client = begin(), Client()
    final = client.final(challenge_of(state, client.first()))
    with pytest.raises(MalformedToken, match="expected 32 bytes of proof"):
        state.evaluate(final.rpartition(b",p=")[0] + b",p=" + b64encode(proof))


def test_a_message_that_is_too_long_ends_the_login_without_an_answer() -> None:
    with pytest.raises(MalformedToken):
        begin().evaluate(b"n,,n=alice,r=x" + b",a=b" * 5000)


def test_patterns_take_no_long_time_for_rubbish() -> None:
    """Each message is of bounded size, and its pattern never tries one part in two ways."""
    for rubbish in (b"n,,n=" + b"a" * 15_000, b"n,,n=a,r=x" + b",a=" * 5_000 + b","):
        with pytest.raises(AuthenticationFailed):
            begin().evaluate(rubbish)

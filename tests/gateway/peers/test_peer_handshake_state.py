"""Two brokers trust each other if both know the secret, and if it is the broker that was wanted."""

import pytest

from kledger.gateway.peers.peer_handshake_state import (
    ANSWER_BYTES,
    HELLO_BYTES,
    MAGIC,
    PROOF_BYTES,
    AcceptingHandshake,
    ConnectingHandshake,
    HandshakeRefused,
)

SECRET = bytes(range(32))
OTHER_SECRET = bytes(32)
ONE, TWO = b"\1" * 32, b"\2" * 32


def connecting(target: int = 2, secret: bytes = SECRET, nonce: bytes = ONE) -> ConnectingHandshake:
    return ConnectingHandshake(source=1, target=target, secret=secret, nonce=nonce)


def accepting(secret: bytes = SECRET, nonce: bytes = TWO, broker_id: int = 2) -> AcceptingHandshake:
    return AcceptingHandshake(broker_id=broker_id, secret=secret, nonce=nonce)


def test_brokers_with_one_secret_trust_each_other() -> None:
    one, two = connecting(), accepting()
    assert HELLO_BYTES == len(one.hello())
    challenge = two.challenge(one.hello())
    assert ANSWER_BYTES == len(challenge)
    proof = one.prove(challenge)
    assert PROOF_BYTES == len(proof)
    one.check(two.verdict(proof))
    assert 1 == two.source


def test_the_bytes_are_those_of_the_tables() -> None:
    hello = connecting().hello()
    assert MAGIC + b"\0\0\0\1" + b"\0\0\0\2" + ONE == hello
    assert b"\0" + TWO == accepting().challenge(hello)


def test_broker_with_another_secret_gets_a_refusal() -> None:
    one, two = connecting(secret=OTHER_SECRET), accepting()
    proof = one.prove(two.challenge(one.hello()))
    with pytest.raises(HandshakeRefused, match="broker 1: expected a proof by the secret") as error:
        two.verdict(proof)
    with pytest.raises(HandshakeRefused, match="broker 2: it has another secret"):
        one.check(error.value.answer)


def test_accepting_broker_without_the_secret_is_not_trusted() -> None:
    one = connecting()
    one.prove(b"\0" + TWO)
    with pytest.raises(HandshakeRefused, match="broker 2: expected a proof by the secret"):
        one.check(b"\0" + bytes(32))


def test_a_proof_sent_back_proves_nothing() -> None:
    """An accepting broker could send back the proof that it has just received, or a client ours."""
    one, two = connecting(), accepting()
    proof = one.prove(two.challenge(one.hello()))
    with pytest.raises(HandshakeRefused):
        one.check(b"\0" + proof)
    made = two.verdict(proof)[1:]
    with pytest.raises(HandshakeRefused):
        two.verdict(made)


def test_a_proof_of_another_connection_proves_nothing() -> None:
    one, two = connecting(), accepting()
    proof = one.prove(two.challenge(one.hello()))
    again = accepting(nonce=b"\3" * 32)
    again.challenge(one.hello())
    with pytest.raises(HandshakeRefused):
        again.verdict(proof)


def test_a_proof_for_another_broker_proves_nothing() -> None:
    """A broker that is asked as number 2 cannot pass what it gets on to number 3."""
    one, two, three = connecting(), accepting(), accepting(broker_id=3)
    proof = one.prove(two.challenge(one.hello()))
    three.challenge(connecting(target=3).hello())
    with pytest.raises(HandshakeRefused):
        three.verdict(proof)


def test_another_broker_than_the_one_that_is_wanted_says_so() -> None:
    one, two = connecting(target=3), accepting()
    with pytest.raises(
        HandshakeRefused, match="broker 1 wants broker 3, this is broker 2"
    ) as error:
        two.challenge(one.hello())
    with pytest.raises(HandshakeRefused, match="broker 3: another broker is at its address"):
        one.prove(error.value.answer)


@pytest.mark.parametrize(
    "beginning", [b"G", b"GET / HT", b"\x16\x03\x01", b"\0\0\0\x20", b"\xffk "]
)
def test_other_programs_are_refused_at_their_first_bytes(beginning: bytes) -> None:
    with pytest.raises(HandshakeRefused, match="expected the handshake of a broker"):
        AcceptingHandshake.check_beginning(beginning)


def test_a_hello_may_come_in_pieces() -> None:
    hello = connecting().hello()
    for size in range(HELLO_BYTES + 1):
        AcceptingHandshake.check_beginning(hello[:size])


def test_an_unknown_verdict_is_refused() -> None:
    with pytest.raises(HandshakeRefused, match="expected a verdict of 0 to 2, got 9"):
        connecting().prove(b"\x09" + bytes(32))


def test_handshakes_do_not_show_the_secret() -> None:
    for each in (connecting(), accepting()):
        assert SECRET.hex() not in repr(each)
        assert repr(SECRET) not in repr(each)

"""Peer handshake: two brokers prove to each other that they know the secret of their cluster.

| offset | size | hello, of the broker that connects                                       |
|--------|------|--------------------------------------------------------------------------|
| 0      | 8    | `MAGIC`: no request of Kafka, HTTP or TLS begins like this               |
| 8      | 4    | its broker id                                                            |
| 12     | 4    | the broker id that it wants                                              |
| 16     | 32   | its nonce                                                                |

| offset | size | answer, of the broker that accepts: first a challenge, then its proof    |
|--------|------|--------------------------------------------------------------------------|
| 0      | 1    | `Verdict`                                                                |
| 1      | 32   | its nonce, or its proof; zeros if it refuses                             |

Between the two answers the broker that connects sends its proof, 32 bytes. A proof is HMAC-SHA256
with the secret over the prover's role, the hello and the nonce of the challenge.

Rule: pure. The connecting broker proves itself first, so a stranger gets no proof to try secrets
on. Both nonces and both ids are in each proof, so a proof cannot be replayed on another connection,
to another broker, or in the other direction. Nothing but the handshake is sent before both proofs
are checked.
Must not know: sockets, times, what is sent afterwards.
"""

import hmac
from enum import IntEnum
from struct import Struct
from typing import Final

MAGIC: Final = b"\xffkledgr\x01"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16
_HELLO: Final = Struct(">8sii32s")
HELLO_BYTES: Final = _HELLO.size
ANSWER_BYTES: Final = 1 + NONCE_BYTES
_CONNECTS: Final = b"kledger broker that connects\0"
_ACCEPTS: Final = b"kledger broker that accepts\0"


class Verdict(IntEnum):
    """What the broker that accepts says of the other one."""

    GOES_ON = 0
    WRONG_BROKER = 1
    """It is not the broker that was wanted."""
    WRONG_SECRET = 2


class HandshakeRefused(Exception):
    """The other end is no broker of this cluster, or not the one that was wanted.

    Attributes:
        answer: what is sent to it before the connection is closed.
    """

    def __init__(self, message: str, answer: bytes = b"") -> None:
        super().__init__(message)
        self.answer = answer


class ConnectingHandshake:
    """The side of the broker that connects."""

    __slots__ = ("_hello", "_nonce", "_secret", "_target")

    def __init__(self, *, source: int, target: int, secret: bytes, nonce: bytes) -> None:
        """Begin.

        Args:
            source: the id of this broker.
            target: the id of the other one.
            secret: of the cluster.
            nonce: NONCE_BYTES that were never used before.
        """
        _check(secret, nonce)
        self._secret = secret
        self._target = target
        self._hello = _HELLO.pack(MAGIC, source, target, nonce)
        self._nonce = b""

    def hello(self) -> bytes:
        """Return what is sent first."""
        return self._hello

    def prove(self, challenge: bytes) -> bytes:
        """Return the proof that answers a challenge.

        Raises:
            HandshakeRefused: the other end does not go on.
        """
        self._nonce = self._content(challenge)
        return _proof(_CONNECTS, self._secret, self._hello, self._nonce)

    def check(self, answer: bytes) -> None:
        """Check the proof of the other end; afterwards it is trusted.

        Raises:
            HandshakeRefused: it does not know the secret, or says so of this broker.
        """
        expected = _proof(_ACCEPTS, self._secret, self._hello, self._nonce)
        if not hmac.compare_digest(expected, self._content(answer)):
            raise HandshakeRefused(
                f"broker {self._target}: expected a proof by the secret of this cluster"
            )

    def _content(self, answer: bytes) -> bytes:
        """Return what is behind the verdict. Raises HandshakeRefused: it is a refusal."""
        match answer[0]:
            case Verdict.GOES_ON:
                return answer[1:]
            case Verdict.WRONG_BROKER:
                reason = "another broker is at its address"
            case Verdict.WRONG_SECRET:
                reason = "it has another secret than this broker: expected one cluster"
            case other:
                reason = f"expected a verdict of 0 to 2, got {other}"
        raise HandshakeRefused(f"broker {self._target}: {reason}")


class AcceptingHandshake:
    """The side of the broker that accepts a connection.

    Attributes:
        source: the id of the broker at the other end, as it says; true once its proof is checked.
    """

    __slots__ = ("_broker_id", "_hello", "_nonce", "_secret", "source")

    def __init__(self, *, broker_id: int, secret: bytes, nonce: bytes) -> None:
        """Begin.

        Args:
            broker_id: of this broker.
            secret: of the cluster.
            nonce: NONCE_BYTES that were never used before.
        """
        _check(secret, nonce)
        self._broker_id = broker_id
        self._secret = secret
        self._nonce = nonce
        self._hello = b""
        self.source = -1

    @staticmethod
    def check_beginning(received: bytes) -> None:
        """Check the first bytes of a hello, as many as have come.

        Raises:
            HandshakeRefused: they are of no broker.
        """
        if received[: len(MAGIC)] != MAGIC[: len(received)]:
            raise HandshakeRefused(
                f"expected the handshake of a broker, got {received[: len(MAGIC)]!r}"
            )

    def challenge(self, hello: bytes) -> bytes:
        """Return the answer to a hello.

        Raises:
            HandshakeRefused: another broker is wanted.
        """
        self.check_beginning(hello)
        _, self.source, target, _ = _HELLO.unpack(hello)
        self._hello = hello
        if target != self._broker_id:
            raise HandshakeRefused(
                f"broker {self.source} wants broker {target}, this is broker {self._broker_id}",
                _refusal(Verdict.WRONG_BROKER),
            )
        return bytes([Verdict.GOES_ON]) + self._nonce

    def verdict(self, proof: bytes) -> bytes:
        """Return the answer to a proof that is right; afterwards the other end is trusted.

        Raises:
            HandshakeRefused: it does not know the secret.
        """
        expected = _proof(_CONNECTS, self._secret, self._hello, self._nonce)
        if not hmac.compare_digest(expected, proof):
            raise HandshakeRefused(
                f"broker {self.source}: expected a proof by the secret of this cluster",
                _refusal(Verdict.WRONG_SECRET),
            )
        made = _proof(_ACCEPTS, self._secret, self._hello, self._nonce)
        return bytes([Verdict.GOES_ON]) + made


def _refusal(verdict: Verdict) -> bytes:
    return bytes([verdict]) + bytes(NONCE_BYTES)


def _proof(role: bytes, secret: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, role + hello + nonce, "sha256")


def _check(secret: bytes, nonce: bytes) -> None:
    assert len(secret) >= SECRET_BYTES_MIN, f"a secret of {len(secret)} bytes"
    assert len(nonce) == NONCE_BYTES, f"a nonce of {len(nonce)} bytes"

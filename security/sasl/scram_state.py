"""SCRAM-SHA-256 and SCRAM-SHA-512: a login with two messages (RFC 5802, RFC 7677).

    client  n,,n=user,r=NONCE                     the first message; its `n,,` is the GS2 header
    server  r=NONCE+OURS,s=salt,i=iterations
    client  c=GS2 header,r=NONCE+OURS,p=proof
    server  v=signature                           with the success

Rule: pure. A user that does not exist gets the same messages as one with another password, and the
same work. As with Apache Kafka, a message of another form is a failure like any other, and a proof
of another length ends the connection without an answer. Channel binding is `n` or `y`; the header
is repeated and the nonce is compared whole. A delegation token is a user whose login has the
extension `tokenauth=true` (KIP-48).
Must not know: connections, randomness, where credentials are stored.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kledger.security.credentials import USER_NAME_MAX, ScramCredential, ScramMechanism
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    MalformedToken,
    Step,
    invalid_credentials,
)
from kledger.security.sasl.plain_state import OTHER_AUTHORIZATION_ID

MESSAGE_BYTES_MAX: Final = 16 * 1024
NONCE_MAX: Final = 1_024
"""Characters of the client's nonce."""

_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization_id>[^,]*))?,)"
    r"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL: Final = re.compile(
    r"(?P<unproved>c=(?P<header>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,]*)*)"
    r",p=(?P<proof>[^,]+)"
)
_ESCAPES: Final = re.compile("=(2C|3D)?")


class KnownCredential(NamedTuple):
    """A credential and whose it is."""

    credential: ScramCredential
    principal: Principal | None
    """None: the credential is a decoy, and no proof opens it."""
    expires_at_ms: int | None = None


FindCredential = Callable[[str, bool], KnownCredential]
"""Returns the credential of a user name, or of a token id (True)."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the second message is compared with."""

    known: KnownCredential
    header: str
    nonce: str
    signed: str
    """The first messages of both sides, which the proof covers."""
    is_token: bool


class ScramState:
    """One login with SCRAM."""

    __slots__ = ("_begun", "_find", "_mechanism", "_server_nonce")

    def __init__(
        self, mechanism: ScramMechanism, find: FindCredential, *, server_nonce: str
    ) -> None:
        """Begin.

        Args:
            mechanism: which of the two.
            find: returns the credential that the client names, or a decoy.
            server_nonce: random, of this login only, printable and without commas.
        """
        self._mechanism = mechanism
        self._find = find
        self._server_nonce = server_nonce
        self._begun: _Begun | None = None

    def evaluate(self, token: bytes) -> Step:
        """Decide on the first message, or on the second one."""
        if len(token) > MESSAGE_BYTES_MAX:
            raise MalformedToken(f"{self._name}: {len(token)} bytes, most are {MESSAGE_BYTES_MAX}")
        text = token.decode(errors="replace")
        return self._first(text) if self._begun is None else self._final(text, self._begun)

    @property
    def _name(self) -> str:
        return self._mechanism.sasl_name

    def _first(self, text: str) -> Step:
        message = _FIRST.fullmatch(text)
        if message is None or len(message["nonce"]) > NONCE_MAX:
            raise self._failed()
        user = self._unescaped(message["user"])
        authorization_id = self._unescaped(message["authorization_id"] or "")
        if authorization_id not in ("", user):
            raise AuthenticationFailed(OTHER_AUTHORIZATION_ID)
        is_token = "tokenauth=true" in message["extensions"].lower().split(",")
        known = self._find(user, is_token)
        nonce = message["nonce"] + self._server_nonce
        salt = b64encode(known.credential.salt).decode()
        challenge = f"r={nonce},s={salt},i={known.credential.iterations}"
        self._begun = _Begun(
            known, message["header"], nonce, f"{message['bare']},{challenge}", is_token
        )
        return Challenge(challenge.encode())

    def _final(self, text: str, begun: _Begun) -> Step:
        message = _FINAL.fullmatch(text)
        if message is None:
            raise self._failed()
        proof = self._decoded(message["proof"])
        if len(proof) != self._mechanism.digest_bytes:
            raise MalformedToken(
                f"{self._name}: expected {self._mechanism.digest_bytes} bytes of proof, "
                f"got {len(proof)}"
            )
        signed = f"{begun.signed},{message['unproved']}".encode()
        known = begun.known
        is_proved = (
            self._decoded(message["header"]) == begun.header.encode()
            and message["nonce"] == begun.nonce
            and self._is_proof(known.credential, proof, signed)
        )
        if known.principal is None or not is_proved:
            raise self._failed()
        signature = self._mechanism.keyed_hash(known.credential.server_key, signed)
        return Authenticated(
            principal=known.principal,
            token=b"v=" + b64encode(signature),
            expires_at_ms=known.expires_at_ms,
            is_token=begun.is_token,
        )

    def _failed(self) -> AuthenticationFailed:
        return invalid_credentials(self._name)

    def _is_proof(self, credential: ScramCredential, proof: bytes, signed: bytes) -> bool:
        signature = self._mechanism.keyed_hash(credential.stored_key, signed)
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        return hmac.compare_digest(self._mechanism.hash(client_key), credential.stored_key)

    def _decoded(self, text: str) -> bytes:
        try:
            return b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise self._failed() from None

    def _unescaped(self, name: str) -> str:
        """Return a name, in which `=2C` is a comma and `=3D` the sign itself."""
        if len(name) > USER_NAME_MAX:
            raise self._failed()

        def character(escape: re.Match[str]) -> str:
            if escape[1] is None:
                raise self._failed()
            return "," if escape[1] == "2C" else "="

        return _ESCAPES.sub(character, name)

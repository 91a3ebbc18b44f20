"""Kledger and Apache Kafka answer logins alike: right ones, wrong ones and rubbish.

Rule: a login is its tokens, and what came back for each: the code, the text, whether there was a
challenge, and whether the connection was still open.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from compat_tests.differential.connection import Closed, Connection
from compat_tests.differential.secured_pair import SecuredPair, secured_pair
from kledger.gateway.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.gateway.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from kledger.gateway.wire.schema import ApiMessage

pytestmark = pytest.mark.slow
LISTENER: Final = "listener.name.sasl_plaintext"
UNSECURED: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    f"{LISTENER}.scram-sha-256.sasl.jaas.config": SCRAM,
    f"{LISTENER}.oauthbearer.sasl.jaas.config": OAUTH,
    f"{LISTENER}.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
}
FAR_FUTURE_S: Final = 4_000_000_000


def part(value: object) -> str:
    """Return a part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def unsecured_token(**claims: object) -> str:
    """Return an access token without a signature."""
    return f"{part({'alg': 'none'})}.{part({'sub': 'ann', 'iat': 1, **claims})}."


TOKEN: Final = unsecured_token(exp=FAR_FUTURE_S)


def bearer(token: str = TOKEN, *, header: str = "n,,", more: str = "") -> bytes:
    """Return the first message of OAUTHBEARER."""
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


END: Final = b"\x01"
EXPIRED: Final = bearer(unsecured_token(exp=1))
OF_BASIC: Final = bearer().replace(b"Bearer", b"Basic")
LOGINS: Final[dict[str, list[tuple[bytes, ...]]]] = {
    "PLAIN": [
        (b"\0ann\0ann-secret",),
        (b"ann\0ann\0ann-secret",),
        (b"bob\0ann\0ann-secret",),
        (b"\0ann\0wrong",),
        (b"\0nobody\0wrong",),
        (b"\0ann\0",),
        (b"\0\0ann-secret",),
        (b"\0",),
        (b"\0ann\0ann-secret\0",),
        (b"\xff\xfe",),
    ],
    "SCRAM-SHA-256": [
        (b"\0",),
        (b"\xff\xfe",),
        (b"n,,n=ann",),
        (b"n,,n=ann,r=",),
        (b"p=tls-unique,,n=ann,r=abc",),
        (b"n,,m=x,n=ann,r=abc",),
    ],
    "OAUTHBEARER": [
        (bearer(),),
        (bearer(header="n,a=ann,"),),
        (bearer(header="n,a=root,"),),
        (bearer(more="traceId=1\x01"),),
        (EXPIRED, END),
        (EXPIRED, b"another"),
        (EXPIRED, bearer()),
        (bearer(unsecured_token()), END),
        (bearer("no.token"), END),
        (bearer(""),),
        (b"\x01",),
        (b"\xff\xfe",),
        (b"rubbish",),
        (bearer()[:-1],),
        (bearer(header="y,,"),),
        (bearer(header="p=tls-unique,,"),),
        (bearer().replace(b"auth=", b"auto="),),
        (OF_BASIC,),
        (bearer(more="auth=Bearer u\x01"),),
        (bearer(more="a-b=1\x01"),),
        (bearer(more="a=\x02\x01"),),
    ],
}


EXPLAINED: Final[dict[tuple[bytes, ...], str]] = {
    (bearer(header="n,a=root,"),): "Kafka's text names both users",
    (EXPIRED, bearer()): "a login that has failed takes no second token",
    (bearer(more="auth=Bearer u\x01"),): "an extension that stands twice is no message",
    (OF_BASIC,): "Kafka fails, and sends no answer",
}
"""Logins that are answered differently, and why."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPair]:
    """Both servers, with every mechanism."""
    with secured_pair(tmp_path_factory, ("ann",), SETTINGS) as running:
        yield running


def outcome(bootstrap: str, mechanism: str, tokens: tuple[bytes, ...]) -> list[object]:
    """Log in, and return what came back."""
    connection = Connection(bootstrap)
    try:
        chosen = asked(connection, SaslHandshakeRequest(mechanism=mechanism), 1)
        assert chosen.error_code == 0, chosen
        found: list[object] = []
        for token in tokens:
            answer = asked(connection, SaslAuthenticateRequest(auth_bytes=token), 2)
            if isinstance(answer, Closed):
                return [*found, "closed"]
            found.append((answer.error_code, answer.error_message, answer.auth_bytes))
        last = asked(connection, ApiVersionsRequest(), 0)
        return [*found, "closed" if isinstance(last, Closed) else "open"]
    finally:
        connection.close()


def asked(connection: Connection, request: ApiMessage, version: int) -> Any:
    """Return an answer, or that the server has closed the connection."""
    try:
        connection.send(request, version)
        return connection.receive()
    except ConnectionError:
        return Closed()


@pytest.mark.parametrize("mechanism", LOGINS)
def test_both_answer_logins_alike(pair: SecuredPair, mechanism: str) -> None:
    differing = []
    for tokens in LOGINS[mechanism]:
        ours, theirs = (outcome(each.guarded, mechanism, tokens) for each in pair.servers)
        if (ours == theirs) is (tokens in EXPLAINED):
            differing.append(f"{tokens!r}: {ours} here, {theirs} there")
    assert not differing, "\n" + "\n".join(differing)

"""JSON Web Tokens (RFC 7519): what a server reads of a token, and demands of its claims.

    BASE64URL(header) . BASE64URL(claims) . BASE64URL(signature)

Rule: pure. A header only chooses among the keys and algorithms that the server has; nothing that it
names is loaded or asked. Algorithms are asymmetric: a shared secret would let every server that can
verify a token also make one. Times are compared with a clock skew in the client's favour. Texts of
errors quote nothing that a client sent.
Must not know: keys, where they come from, SASL.
"""

import binascii
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, NamedTuple

TOKEN_BYTES_MAX: Final = 16 * 1024
NAME_MAX: Final = 1_024
"""Characters of a principal's name, and of a key id."""
NO_ALGORITHM: Final = "none"
RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
CURVE_ALGORITHMS: Final[Mapping[str, frozenset[str]]] = {
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"Ed25519", "EdDSA"}),  # by RFC 9864, and by its older name
}
"""By the curve of a key."""
ASYMMETRIC_ALGORITHMS: Final = RSA_ALGORITHMS.union(*CURVE_ALGORITHMS.values())


class InvalidAccessToken(Exception):
    """A token that is not accepted; the message is for the log, not for the client."""


class TokenHeader(NamedTuple):
    """What chooses the key of a token."""

    algorithm: str
    key_id: str | None = None


class AccessToken(NamedTuple):
    """The user of a valid token, and its expiry in milliseconds since 1970."""

    principal_name: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """What a server demands of the claims of a token.

    Attributes:
        issuer: `iss`, exactly; None: any, for unsecured tokens only.
        audiences: one of them is in `aud`; none: any, likewise.
        clock_skew_s: by how many seconds the clocks of issuer and server may differ.
        principal_claim: the claim with the name of the principal.
    """

    issuer: str | None
    audiences: frozenset[str]
    clock_skew_s: int = 30
    principal_claim: str = "sub"


def read_header(token: str) -> TokenHeader:
    """Return the header of a token.

    Raises:
        InvalidAccessToken: it is no token, or demands an extension (`crit`).
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidAccessToken(
            f"the token has {len(token)} characters, expected at most {TOKEN_BYTES_MAX}"
        )
    if not token.isascii() or token.count(".") != 2:
        raise InvalidAccessToken("expected three parts of ASCII with dots between them")
    header = _json_object("header", _decoded("header", token.partition(".")[0]))
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise InvalidAccessToken("header: expected alg as a text")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= NAME_MAX):
        raise InvalidAccessToken(f"header: expected kid as a text of at most {NAME_MAX} characters")
    if "crit" in header:
        raise InvalidAccessToken("header: expected no crit, as no extension is known here")
    return TokenHeader(algorithm, key_id)


def unsecured_payload(token: str) -> bytes:
    """Return the claims of a token without a signature (RFC 7515, appendix A.5).

    Raises:
        InvalidAccessToken: it is secured in any way, or no token.
    """
    if read_header(token).algorithm != NO_ALGORITHM:
        raise InvalidAccessToken("expected an unsecured token, with the algorithm none")
    _, payload, signature = token.split(".")
    if signature:
        raise InvalidAccessToken("expected an unsecured token, without a signature")
    return _decoded("claims", payload)


def accept_claims(payload: bytes, rules: ClaimRules, now_ms: int) -> AccessToken:
    """Return the user that the claims of a verified token name.

    Args:
        payload: the claims as JSON.
        rules: what the server demands.
        now_ms: since 1970.

    Raises:
        InvalidAccessToken: a claim is missing or another one than expected.
    """
    claims = _json_object("claims", payload)
    now_s = now_ms / 1000
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise InvalidAccessToken("claims: expected exp, which is missing")
    if expires_s + rules.clock_skew_s <= now_s:
        raise InvalidAccessToken("claims: exp has passed")
    for name in ("nbf", "iat"):
        begins_s = _time(claims, name)
        if begins_s is not None and begins_s - rules.clock_skew_s > now_s:
            raise InvalidAccessToken(f"claims: {name} is in the future")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidAccessToken("claims: iss is not sasl.oauthbearer.expected.issuer")
    if rules.audiences and not rules.audiences.intersection(_audiences(claims)):
        raise InvalidAccessToken("claims: aud has none of sasl.oauthbearer.expected.audience")
    return AccessToken(_principal_name(claims, rules.principal_claim), int(expires_s * 1000))


def _principal_name(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_MAX:
        raise InvalidAccessToken(
            f"claims: expected {claim} as a text of 1 to {NAME_MAX} characters"
        )
    return name


def _audiences(claims: Mapping[str, Any]) -> list[str]:
    audience = claims.get("aud")
    given = audience if isinstance(audience, list) else [audience]
    return [each for each in given if isinstance(each, str)]


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a time in seconds since 1970; None: there is none."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or not 0 <= value < 1 << 40:
        raise InvalidAccessToken(f"claims: expected {name} in seconds since 1970")
    return float(value)


def _decoded(part: str, text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidAccessToken(f"{part}: expected base64url") from None


def _json_object(part: str, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise InvalidAccessToken(f"{part}: expected JSON") from None
    if not isinstance(found, dict):
        raise InvalidAccessToken(f"{part}: expected a JSON object")
    return found

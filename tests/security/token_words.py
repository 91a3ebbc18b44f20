"""Tokens and keys for tests."""

import hmac
import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
ISSUER, AUDIENCE = "https://issuer.example", "kledger"


@cache
def rsa_key(bits: int = 2_048, number: int = 0) -> RSAKey:
    """A key pair; the number distinguishes those of one size."""
    return RSAKey.generate_key(bits, {"kid": f"rsa-{bits}-{number}"}, auto_kid=False)


@cache
def ec_key(curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": f"ec-{curve}"}, auto_kid=False)


@cache
def ed_key() -> OKPKey:
    return OKPKey.generate_key("Ed25519", {"kid": "ed"}, auto_kid=False)


def public(key: Any, **fields: object) -> dict[str, object]:
    """The entry of a key in a set; a field None is left out."""
    entry = {**key.as_dict(private=False), **fields}
    return {name: value for name, value in entry.items() if value is not None}


def key_set_json(*entries: object) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def claims(**changed: object) -> dict[str, object]:
    """Claims that the rules of the tests accept; a claim None is left out."""
    good = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW_S + 60, "iat": NOW_S - 1}
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def signed(
    content: dict[str, object] | None = None,
    *,
    key: Any = None,
    algorithm: str = "RS256",
    header: dict[str, object] | None = None,
) -> str:
    """A token, signed by a key that is in the set of the tests unless another one is given."""
    key = key or rsa_key()
    head = {"alg": algorithm, "kid": key.kid, **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    payload = json.dumps(claims() if content is None else content)
    return jws.serialize_compact(head, payload, key, algorithms=[algorithm])


def signed_by_hmac(secret: bytes, **header: object) -> str:
    """A token of HS256 with any bytes as the secret."""
    unsigned = assembled({"alg": "HS256", **header}, claims()).removesuffix(".")
    return f"{unsigned}.{encoded(hmac.digest(secret, unsigned.encode(), 'sha256'))}"


def assembled(header: object, content: object, signature: bytes = b"") -> str:
    """Three parts, whatever they mean; bytes are taken as they are."""
    return ".".join(
        encoded(part if isinstance(part, bytes) else json.dumps(part).encode())
        for part in (header, content, signature)
    )


def encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()

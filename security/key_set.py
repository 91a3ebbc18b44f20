"""KeySet: the public keys with which an issuer's tokens are verified (RFC 7517).

Rule: a set is a value and never changes. A key serves only algorithms of its type and curve,
and of its `alg` if it has one. Symmetric keys, keys for encryption and RSA keys that are too short
are left out; a set without any other key is an error.
Must not know: where the set comes from, claims, clients.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from kledger.security.json_web_token import (
    CURVE_ALGORITHMS,
    RSA_ALGORITHMS,
    InvalidAccessToken,
    TokenHeader,
)

KEY_SET_BYTES_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2_048
_KEY_CLASSES: Final[Mapping[str, Any]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}


class VerificationKey(NamedTuple):
    """One public key."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any
    """A key of joserfc."""

    def verified_payload(self, token: str, algorithm: str) -> bytes:
        """Return the claims of a token that was signed with this key; computes, for a thread.

        Raises:
            InvalidAccessToken: the signature is another one, or the token is malformed.
        """
        try:
            return jws.deserialize_compact(token, self.key, algorithms=[algorithm]).payload
        except (JoseError, ValueError, TypeError) as error:
            raise InvalidAccessToken(f"signature: {type(error).__name__}") from None


class KeySet:
    """The usable keys of one document."""

    def __init__(self, keys: Sequence[VerificationKey]) -> None:
        self.keys = tuple(keys)
        self._by_id = {each.key_id: each for each in keys if each.key_id is not None}

    def find(self, header: TokenHeader) -> VerificationKey | None:
        """Return the key of a token; None: the set has none, or the header does not say which.

        A header without a key id chooses a key only if its algorithm leaves one alone.
        """
        if header.key_id is not None:
            found = self._by_id.get(header.key_id)
            return found if found is not None and header.algorithm in found.algorithms else None
        suitable = [each for each in self.keys if header.algorithm in each.algorithms]
        return suitable[0] if len(suitable) == 1 else None


def parse_key_set(content: bytes) -> KeySet:
    """Read a document of keys (JWKS).

    Raises:
        ValueError: what was expected; nothing of the document is in the message.
    """
    if len(content) > KEY_SET_BYTES_MAX:
        raise ValueError(f"expected at most {KEY_SET_BYTES_MAX} bytes, got {len(content)}")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("expected JSON") from None
    entries = _entries(document)
    if len(entries) > KEYS_MAX:
        raise ValueError(f"expected at most {KEYS_MAX} keys, got {len(entries)}")
    keys = [key for each in entries if (key := _usable_key(each)) is not None]
    if not keys:
        raise ValueError(
            f"expected a public key for signatures (RSA of {RSA_BITS_MIN} bits or more, EC or "
            f"Ed25519), got {len(entries)} others"
        )
    ids = [each.key_id for each in keys if each.key_id is not None]
    if len(set(ids)) < len(ids):
        raise ValueError("expected each key id once")
    return KeySet(keys)


def _entries(document: object) -> list[object]:
    match document:
        case {"keys": list(entries)}:
            return entries
    raise ValueError('expected an object with a list of "keys"')


def _usable_key(entry: object) -> VerificationKey | None:
    """Return the key of an entry; None: it verifies no signatures."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    key_class = _KEY_CLASSES.get(str(entry.get("kty")))
    if key_class is None or not isinstance(operations, list) or "verify" not in operations:
        return None
    algorithms = _algorithms_of(entry)
    if isinstance(entry.get("alg"), str):
        algorithms &= {entry["alg"]}
    if not algorithms:
        return None
    public = {name: entry[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in entry}
    try:
        key = key_class.import_key(public)
        is_short = key_class is RSAKey and key.public_key.key_size < RSA_BITS_MIN
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    key_id = entry.get("kid")
    return (
        None
        if is_short
        else VerificationKey(key_id if isinstance(key_id, str) else None, algorithms, key)
    )


def _algorithms_of(entry: Mapping[str, object]) -> frozenset[str]:
    if entry.get("kty") == "RSA":
        return RSA_ALGORITHMS
    return CURVE_ALGORITHMS.get(str(entry.get("crv")), frozenset())

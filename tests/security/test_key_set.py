"""Sets of public keys: which keys serve, and what they verify."""

import json
from typing import Any

import pytest

from kledger.security.json_web_token import InvalidAccessToken, TokenHeader
from kledger.security.key_set import KEY_SET_BYTES_MAX, KEYS_MAX, parse_key_set
from tests.security.token_words import (
    assembled,
    claims,
    ec_key,
    ed_key,
    key_set_json,
    public,
    rsa_key,
    signed,
    signed_by_hmac,
)

ALGORITHMS = [
    *((rsa_key, each) for each in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    (lambda: ec_key("P-256"), "ES256"),
    (lambda: ec_key("P-384"), "ES384"),
    (lambda: ec_key("P-521"), "ES512"),
    (ed_key, "EdDSA"),
    (ed_key, "Ed25519"),
]

pytestmark = pytest.mark.filterwarnings("ignore:Key size", "ignore:EdDSA is deprecated")


@pytest.mark.parametrize(("make_key", "algorithm"), ALGORITHMS)
def test_every_asymmetric_algorithm_is_verified(make_key: Any, algorithm: str) -> None:
    key = make_key()
    keys = parse_key_set(key_set_json(public(key)))
    token = signed(key=key, algorithm=algorithm)
    found = keys.find(TokenHeader(algorithm, key.kid))
    assert found is not None
    assert claims() == json.loads(found.verified_payload(token, algorithm))
    head, content, signature = token.split(".")
    for forged in (
        f"{head}.{content}.",
        f"{head}.{content}.{signature[:-8]}",
        f"{head}.{assembled(claims(sub='root'), {}).split('.')[0]}.{signature}",
        f"{head}.{content}.{'A' * len(signature)}",
    ):
        with pytest.raises(InvalidAccessToken):
            found.verified_payload(forged, algorithm)


def test_a_key_verifies_no_token_of_another_algorithm() -> None:
    keys = parse_key_set(key_set_json(public(rsa_key()), public(ec_key())))
    for algorithm in ("ES256", "HS256", "none", "rs256", "RS1", ""):
        assert keys.find(TokenHeader(algorithm, rsa_key().kid)) is None
    found = keys.find(TokenHeader("RS256", rsa_key().kid))
    assert found is not None
    for token in (
        signed(algorithm="RS512"),
        signed_by_hmac(rsa_key().as_pem(private=False)),
        assembled({"alg": "none"}, claims()),
    ):
        with pytest.raises(InvalidAccessToken):
            found.verified_payload(token, "RS256")


def test_a_declared_algorithm_is_the_only_one() -> None:
    keys = parse_key_set(key_set_json(public(rsa_key(), alg="PS256")))
    assert keys.find(TokenHeader("PS256", rsa_key().kid)) is not None
    assert keys.find(TokenHeader("RS256", rsa_key().kid)) is None


def test_without_a_key_id_the_algorithm_must_leave_one_key() -> None:
    keys = parse_key_set(
        key_set_json(public(rsa_key()), public(rsa_key(number=1)), public(ec_key()))
    )
    assert keys.find(TokenHeader("RS256")) is None
    found = keys.find(TokenHeader("ES256"))
    assert found is not None
    assert ec_key().kid == found.key_id
    assert keys.find(TokenHeader("RS256", "../../etc/passwd")) is None


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        public(rsa_key(), use="enc"),
        public(rsa_key(), key_ops=["encrypt"]),
        public(rsa_key(), alg="HS256"),
        public(rsa_key(), alg="RSA-OAEP"),
        public(rsa_key(1_024)),
        public(rsa_key(), n=None),
        public(ec_key(), crv="secp256k1"),
        public(ec_key(), x="AAAA"),
        {"kty": []},
        "rsa",
        None,
    ],
)
def test_keys_that_verify_no_signatures_are_left_out(entry: Any) -> None:
    with pytest.raises(ValueError, match="expected a public key for signatures"):
        parse_key_set(key_set_json(entry))
    assert 1 == len(parse_key_set(key_set_json(entry, public(ed_key()))).keys)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "keys"),
        (b'{"keys":{}}', "keys"),
        (b'{"keys":[]}', "a public key"),
        (b" " * (KEY_SET_BYTES_MAX + 1), "bytes"),
        (key_set_json(*[{}] * (KEYS_MAX + 1)), "101"),
        (key_set_json(public(rsa_key()), public(ec_key(), kid=rsa_key().kid)), "once"),
    ],
)
def test_documents_are_refused_with_what_was_expected(content: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        parse_key_set(content)


def test_a_private_key_in_the_document_is_not_kept() -> None:
    keys = parse_key_set(key_set_json(rsa_key().as_dict(private=True)))
    assert not keys.keys[0].key.is_private

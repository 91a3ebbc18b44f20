"""What is read of a token, and demanded of its claims."""

import pytest

from kledger.security.json_web_token import (
    NAME_MAX,
    TOKEN_BYTES_MAX,
    AccessToken,
    ClaimRules,
    InvalidAccessToken,
    TokenHeader,
    accept_claims,
    read_header,
    unsecured_payload,
)
from tests.security.token_words import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    NOW_S,
    assembled,
    claims,
    encoded,
)

RULES = ClaimRules(issuer=ISSUER, audiences=frozenset({AUDIENCE, "other"}))
DEEP = b"[" * 8_000


def payload(**changed: object) -> bytes:
    import json

    return json.dumps(claims(**changed)).encode()


def test_claims_name_a_principal_and_when_the_token_ends() -> None:
    assert AccessToken("ann", NOW_MS + 60_000) == accept_claims(payload(), RULES, NOW_MS)
    rules = ClaimRules(issuer=ISSUER, audiences=RULES.audiences, principal_claim="email")
    assert "a@b" == accept_claims(payload(email="a@b"), rules, NOW_MS).principal_name


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"exp": None}, "exp"),
        ({"exp": NOW_S - 30}, "exp"),
        ({"exp": str(NOW_S + 60)}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": -1}, "exp"),
        ({"exp": 1 << 60}, "exp"),
        ({"nbf": NOW_S + 31}, "nbf"),
        ({"iat": NOW_S + 31}, "iat"),
        ({"nbf": "soon"}, "nbf"),
        ({"iss": None}, "iss"),
        ({"iss": ISSUER + "/"}, "iss"),
        ({"iss": [ISSUER]}, "iss"),
        ({"aud": None}, "aud"),
        ({"aud": "kledgers"}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": {AUDIENCE: 1}}, "aud"),
        ({"aud": [["kledger"]]}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": " "}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "x" * (NAME_MAX + 1)}, "sub"),
    ],
)
def test_claims_are_refused_by_name(changed: dict[str, object], error: str) -> None:
    with pytest.raises(InvalidAccessToken, match=f"claims: .*{error}"):
        accept_claims(payload(**changed), RULES, NOW_MS)


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": NOW_S - 29},
        {"exp": NOW_S - 29.5},
        {"nbf": NOW_S + 30},
        {"iat": NOW_S + 30},
        {"iat": None},
        {"aud": ["x", "other"]},
        {"sub": "x" * NAME_MAX},
    ],
)
def test_claims_at_the_edge_are_accepted(changed: dict[str, object]) -> None:
    assert accept_claims(payload(**changed), RULES, NOW_MS).principal_name


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{", b"\xff", DEEP, b'{"exp":1e999}', b'{"exp":NaN}',
     b'{"exp":' + b"9" * 5_000 + b"}"],
)  # fmt: skip
def test_claims_that_are_no_object_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidAccessToken, match="claims: "):
        accept_claims(content, RULES, NOW_MS)


def test_a_header_names_algorithm_and_key() -> None:
    assert TokenHeader("RS256", "a/../b") == read_header(
        assembled({"alg": "RS256", "kid": "a/../b", "jku": "http://evil"}, {})
    )
    assert TokenHeader("RS256", None) == read_header(assembled({"alg": "RS256"}, {}))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "..",
        "a.b",
        "a.b.c.d",
        "é.b.c",
        "****.b.c",
        assembled([], {}),
        assembled({}, {}),
        assembled({"alg": 1}, {}),
        assembled({"alg": "RS256", "kid": 1}, {}),
        assembled({"alg": "RS256", "kid": "k" * (NAME_MAX + 1)}, {}),
        assembled({"alg": "RS256", "crit": ["b64"], "b64": False}, {}),
        assembled(DEEP, {}),
        assembled({"alg": "RS256"}, b"x" * TOKEN_BYTES_MAX),
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidAccessToken):
        read_header(token)


def test_only_tokens_without_algorithm_and_signature_are_unsecured() -> None:
    assert b"{}" == unsecured_payload(assembled({"alg": "none"}, {}))
    for token in (
        assembled({"alg": "none"}, {}, b"signature"),
        assembled({"alg": "RS256"}, {}),
        assembled({"alg": "None"}, {}),
        f"{encoded(b'{}')}.{encoded(b'{}')}.",
    ):
        with pytest.raises(InvalidAccessToken):
            unsecured_payload(token)

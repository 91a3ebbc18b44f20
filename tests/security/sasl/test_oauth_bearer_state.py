"""OAUTHBEARER: the messages of RFC 7628, and tokens that must not be accepted."""

from typing import Any

import pytest

from kledger.security.json_web_token import TOKEN_BYTES_MAX, ClaimRules, InvalidAccessToken
from kledger.security.key_set import parse_key_set
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    MalformedToken,
    NeedWork,
    Step,
)
from kledger.security.sasl.oauth_bearer_state import (
    END_OF_FAILURE,
    EXTENSIONS_MAX,
    REFUSAL,
    OAuthBearerState,
    initial_response,
)
from tests.security.token_words import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    NOW_S,
    assembled,
    claims,
    ec_key,
    key_set_json,
    public,
    rsa_key,
    signed,
    signed_by_hmac,
)

RULES = ClaimRules(issuer=ISSUER, audiences=frozenset({AUDIENCE}))
KEYS = parse_key_set(key_set_json(public(rsa_key()), public(ec_key())))
REFUSED = Challenge(REFUSAL.encode())


def login() -> OAuthBearerState:
    return OAuthBearerState(KEYS, RULES, NOW_MS)


def outcome(state: OAuthBearerState, message: bytes) -> Step:
    """The step after all work was done."""
    step: Step = state.evaluate(message)
    while isinstance(step, NeedWork):
        step = step.resume(step.run())
    return step


def message(token: str, *, authorization_id: str = "", extensions: str = "") -> bytes:
    head = f"n,{f'a={authorization_id}' if authorization_id else ''},"
    return f"{head}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


@pytest.mark.parametrize(
    "sent",
    [
        initial_response(signed()),
        message(signed(), authorization_id="ann"),
        message(signed(), extensions="traceId=1 2\x01x=\x01"),
        message(signed()).replace(b"Bearer", b"bearer"),
        message(signed(key=ec_key(), algorithm="ES256")),
    ],
)
def test_a_valid_token_logs_in_until_it_expires(sent: bytes) -> None:
    assert Authenticated(principal=Principal("ann"), expires_at_ms=NOW_MS + 60_000) == outcome(
        login(), sent
    )


def test_a_name_with_a_comma_may_be_the_authorization_id() -> None:
    token = signed(claims(sub="CN=a,O=b"))
    step = outcome(login(), message(token, authorization_id="CN=3Da=2CO=3Db"))
    assert isinstance(step, Authenticated)


TRICKS: dict[str, str] = {
    "algorithm none": assembled({"alg": "none"}, claims()),
    "algorithm none in capitals": assembled({"alg": "NONE"}, claims()),
    "algorithm none with the key's id": assembled({"alg": "none", "kid": rsa_key().kid}, claims()),
    "no signature": ".".join([*signed().split(".")[:2], ""]),
    "the public key as a secret": signed_by_hmac(
        rsa_key().as_pem(private=False), kid=rsa_key().kid
    ),
    "a key of its own in the header": signed(
        key=rsa_key(number=7), header={"jwk": public(rsa_key(number=7)), "kid": rsa_key().kid}
    ),
    "a URL in the header": signed(key=rsa_key(number=7), header={"jku": "http://127.0.0.1:9/k"}),
    "a path as the key's id": signed(key=rsa_key(number=7), header={"kid": "../../../dev/null"}),
    "a file as the key's id": signed(key=rsa_key(number=7), header={"kid": "file:///etc/hosts"}),
    "another key": signed(key=rsa_key(number=7), header={"kid": rsa_key().kid}),
    "a critical extension": assembled({"alg": "RS256", "crit": ["x"], "x": 1}, claims(), b"s"),
    "foreign issuer": signed(claims(iss="https://evil.example")),
    "no issuer": signed(claims(iss=None)),
    "foreign audience": signed(claims(aud="other")),
    "no audience": signed(claims(aud=None)),
    "expired": signed(claims(exp=NOW_S - 30)),
    "no expiry": signed(claims(exp=None)),
    "not yet": signed(claims(nbf=NOW_S + 31)),
    "no subject": signed(claims(sub=None)),
    "no token": "no.token",
    "too long": "a" * (TOKEN_BYTES_MAX + 1),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_is_refused_and_the_log_says_why(trick: str) -> None:
    state = login()
    assert REFUSED == outcome(state, message(TRICKS[trick]))
    with pytest.raises(AuthenticationFailed) as caught:
        state.evaluate(END_OF_FAILURE)
    assert REFUSAL == str(caught.value)
    assert isinstance(caught.value.__cause__, InvalidAccessToken)
    assert TRICKS[trick] not in str(caught.value.__cause__)


def test_a_refused_login_ends_and_takes_no_second_token() -> None:
    state = login()
    assert REFUSED == outcome(state, message(TRICKS["expired"]))
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        state.evaluate(message(signed()))


def test_another_authorization_id_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        outcome(login(), message(signed(), authorization_id="root"))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        b"\xff",
        message("t")[:-1],
        message("t") + b"\x01",
        message("t").replace(b"n,", b"y,", 1),
        message("t").replace(b"n,", b"p=tls-unique,", 1),
        message("t").replace(b"auth=", b"auto="),
        message("t").replace(b"Bearer", b"Basic"),
        message(""),
        message("t", extensions="auth=Bearer u\x01"),
        message("t", extensions="a=1\x01a=2\x01"),
        message("t", extensions="a-b=1\x01"),
        message("t", extensions="a=\x02\x01"),
        message("t", extensions="a=é\x01"),
        message("t", extensions="".join(f"{'x' * n}=\x01" for n in range(1, EXTENSIONS_MAX + 1))),
    ],
)
def test_a_message_of_another_form_fails_and_the_log_says_why(sent: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid credentials") as caught:
        outcome(login(), sent)
    assert isinstance(caught.value.__cause__, MalformedToken)
    assert str(caught.value.__cause__).startswith("OAUTHBEARER: ")


def test_a_message_that_is_too_long_ends_the_login_without_an_answer() -> None:
    with pytest.raises(MalformedToken):
        outcome(login(), message("t" * 2 * TOKEN_BYTES_MAX))


def test_many_lines_that_nearly_match_cost_no_time() -> None:
    """An expression that backtracks would take longer than the tests may."""
    with pytest.raises(AuthenticationFailed):
        outcome(login(), b"n,,\x01" + b"a=b\x01" * 8_000)


def unsecured(rules: ClaimRules | None = None) -> OAuthBearerState:
    return OAuthBearerState(None, rules or ClaimRules(issuer=None, audiences=frozenset()), NOW_MS)


def test_unsecured_tokens_are_for_a_login_without_keys() -> None:
    token = assembled({"alg": "none"}, {"sub": "ann", "exp": NOW_S + 1})
    step: Any = outcome(unsecured(), message(token))
    assert Principal("ann") == step.principal
    assert REFUSED == outcome(login(), message(token))
    assert REFUSED == outcome(unsecured(), message(signed()))
    old = assembled({"alg": "none"}, {"sub": "ann", "exp": NOW_S - 31})
    assert REFUSED == outcome(unsecured(), message(old))

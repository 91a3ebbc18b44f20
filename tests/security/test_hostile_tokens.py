"""Random and damaged tokens: refused by name, never an error of ours (rule 1 of the attacks)."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kledger.security.json_web_token import (
    ClaimRules,
    InvalidAccessToken,
    accept_claims,
    read_header,
)
from kledger.security.key_set import parse_key_set
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    MalformedToken,
    NeedWork,
    Step,
)
from kledger.security.sasl.oauth_bearer_state import OAuthBearerState, initial_response
from tests.security.token_words import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    assembled,
    claims,
    key_set_json,
    public,
    rsa_key,
    signed,
)

RULES = ClaimRules(issuer=ISSUER, audiences=frozenset({AUDIENCE}))
KEYS = parse_key_set(key_set_json(public(rsa_key())))
GOOD = initial_response(signed())
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["alg", "kid", "crit", "exp", "iss", "aud", "sub", "nbf", "kty", "keys"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


def outcome(message: bytes) -> Step | None:
    """The last step; None: the login was refused with an exception."""
    state = OAuthBearerState(KEYS, RULES, NOW_MS)
    try:
        step: Step = state.evaluate(message)
        while isinstance(step, NeedWork):
            step = step.resume(step.run())
    except (AuthenticationFailed, MalformedToken):
        return None
    return step


@given(st.binary(max_size=300))
def test_random_messages_are_refused(message: bytes) -> None:
    assert not isinstance(outcome(message), Authenticated)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_message_with_one_wrong_byte_is_the_same_login_or_none(at: int, change: int) -> None:
    """The case of the scheme may change, and the last letter of a signature has spare bits."""
    message = bytearray(GOOD)
    message[at] ^= change
    step = outcome(bytes(message))
    if isinstance(step, Authenticated):
        assert "ann" == step.principal.name
        head, _, rest = bytes(message).partition(b"Bearer ")
        kept = rest.rpartition(b".")[0]
        assert kept in GOOD or head.lower() != head


@given(JSON, JSON, st.binary(max_size=20))
def test_any_json_in_a_token_is_refused(header: Any, content: Any, signature: bytes) -> None:
    token = assembled(header, content, signature)
    step = outcome(initial_response(token))
    assert step is None or isinstance(step, Challenge)
    with suppress(InvalidAccessToken):
        assert isinstance(read_header(token).algorithm, str)


@given(JSON)
def test_any_json_as_claims_is_accepted_or_named(content: Any) -> None:
    merged = claims() | content if isinstance(content, dict) else content
    with suppress(InvalidAccessToken):
        found = accept_claims(json.dumps(merged).encode(), RULES, NOW_MS)
        assert found.principal_name
        assert found.expires_at_ms > NOW_MS - 30_001


@given(JSON | st.lists(st.dictionaries(st.sampled_from(["kty", "n", "e", "crv", "x", "y"]), JSON)))
def test_any_json_as_keys_is_a_value_error(content: Any) -> None:
    for document in (content, {"keys": content}, {"keys": [content, public(rsa_key())]}):
        with suppress(ValueError):
            assert parse_key_set(json.dumps(document).encode()).keys

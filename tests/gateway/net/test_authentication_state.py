"""What is permitted before, during and after a login."""

from dataclasses import dataclass

import pytest

from kledger.gateway.net.authentication_state import (
    AUTHENTICATE_KEY,
    FRAME_BYTES_MAX,
    HANDSHAKE_KEY,
    LOGIN_INTERVAL_MS,
    ROUND_TRIPS_MAX,
    Action,
    AuthenticationState,
    NotPermitted,
    Stage,
    TokenAnswer,
)
from kledger.gateway.wire.header import API_VERSIONS_KEY
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    SaslMechanism,
    Step,
)

METADATA_KEY = 3
WALL_MS = 1_700_000_000_000


@dataclass
class NamedUser:
    """A mechanism that believes everybody; `expires=MS` is a credential that ends."""

    def evaluate(self, token: bytes) -> Step:
        if token == b"more":
            return Challenge(b"go on")
        name, _, expires = token.decode().partition(" expires=")
        return Authenticated(
            principal=Principal(name), expires_at_ms=int(expires) if expires else None
        )


def make(_wall_ms: int) -> SaslMechanism:
    return NamedUser()


def state_of(session_max_ms: int = 0) -> AuthenticationState:
    return AuthenticationState({"A": make, "B": make}, lambda _name: session_max_ms)


def log_in(
    state: AuthenticationState, token: bytes = b"alice", *, mechanism: str = "A", now_ms: int = 0
) -> TokenAnswer:
    assert Action.HANDSHAKE is state.admit(HANDSHAKE_KEY, 50, now_ms)
    assert state.choose(mechanism, 1, WALL_MS)
    assert Action.TOKEN is state.admit(AUTHENTICATE_KEY, 50, now_ms)
    step = state.evaluate(token)
    assert isinstance(step, Authenticated | Challenge)
    return state.settle(step, now_ms=now_ms, wall_ms=WALL_MS)


def test_a_login_permits_everything_after_it() -> None:
    state = state_of()
    assert Action.ORDINARY is state.admit(API_VERSIONS_KEY, 50, 0)
    assert TokenAnswer(b"") == log_in(state)
    assert (Principal("alice"), "A") == (state.principal, state.mechanism_name)
    assert Action.ORDINARY is state.admit(METADATA_KEY, 1 << 20, 10**12)
    assert Action.ORDINARY is state.admit(AUTHENTICATE_KEY, 50, 10**12)


@pytest.mark.parametrize("key", [METADATA_KEY, 0, 1, AUTHENTICATE_KEY, -1, 18_000])
def test_nothing_else_is_permitted_at_the_beginning(key: int) -> None:
    with pytest.raises(NotPermitted, match=f"key {key}"):
        state_of().admit(key, 50, 0)


@pytest.mark.parametrize("key", [METADATA_KEY, API_VERSIONS_KEY, HANDSHAKE_KEY])
@pytest.mark.parametrize("version", [0, 1])
def test_nothing_else_is_permitted_between_tokens(key: int, version: int) -> None:
    state = state_of()
    state.admit(HANDSHAKE_KEY, 50, 0)
    state.choose("A", version, WALL_MS)
    with pytest.raises(NotPermitted):
        state.admit(key, 50, 0)


def test_raw_tokens_follow_version_0_alone() -> None:
    state = state_of()
    state.admit(HANDSHAKE_KEY, 50, 0)
    state.choose("A", 0, WALL_MS)
    assert state.has_raw_tokens
    with pytest.raises(NotPermitted):
        state.admit(AUTHENTICATE_KEY, 50, 0)
    state.admit_raw(5)
    step = state.evaluate(b"alice")
    assert isinstance(step, Authenticated)
    state.settle(step, now_ms=0, wall_ms=WALL_MS)
    assert not state.has_raw_tokens


def test_a_mechanism_that_is_not_offered_ends_the_login() -> None:
    state = state_of()
    state.admit(HANDSHAKE_KEY, 50, 0)
    assert not state.choose("C", 1, WALL_MS)
    assert ["A", "B"] == state.offered
    assert Stage.FAILED is state.stage
    with pytest.raises(NotPermitted):
        state.admit(HANDSHAKE_KEY, 50, 0)


def test_a_failed_login_permits_nothing() -> None:
    state = state_of()
    state.admit(HANDSHAKE_KEY, 50, 0)
    state.choose("A", 1, WALL_MS)
    state.fail()
    for key in (API_VERSIONS_KEY, HANDSHAKE_KEY, AUTHENTICATE_KEY, METADATA_KEY):
        with pytest.raises(NotPermitted):
            state.admit(key, 50, 0)


def test_a_login_has_a_limit_of_requests() -> None:
    state = state_of()
    for _ in range(ROUND_TRIPS_MAX):
        state.admit(API_VERSIONS_KEY, 50, 0)
    with pytest.raises(NotPermitted, match="more than 8"):
        state.admit(API_VERSIONS_KEY, 50, 0)


def test_a_login_has_a_limit_of_tokens_too() -> None:
    state = state_of()
    state.admit(HANDSHAKE_KEY, 50, 0)
    state.choose("A", 0, WALL_MS)
    for _ in range(ROUND_TRIPS_MAX - 1):
        state.admit_raw(4)
    with pytest.raises(NotPermitted, match="more than 8"):
        state.admit_raw(4)


def test_a_login_has_small_requests() -> None:
    state_of().admit(HANDSHAKE_KEY, FRAME_BYTES_MAX, 0)
    with pytest.raises(NotPermitted, match="before the end of a login"):
        state_of().admit(HANDSHAKE_KEY, FRAME_BYTES_MAX + 1, 0)


@pytest.mark.parametrize(
    ("session_max_ms", "token", "lifetime_ms"),
    [
        (0, b"alice", 0),
        (5_000, b"alice", 5_000),
        (0, b"alice expires=%d" % (WALL_MS + 3_000), 3_000),
        (5_000, b"alice expires=%d" % (WALL_MS + 3_000), 3_000),
        (2_000, b"alice expires=%d" % (WALL_MS + 3_000), 2_000),
    ],
)
def test_a_session_lasts_until_the_first_of_its_ends(
    session_max_ms: int, token: bytes, lifetime_ms: int
) -> None:
    state = state_of(session_max_ms)
    assert TokenAnswer(b"", lifetime_ms) == log_in(state, token, now_ms=100)
    assert Action.ORDINARY is state.admit(METADATA_KEY, 50, 100 + max(lifetime_ms - 1, 0))
    if lifetime_ms:
        with pytest.raises(NotPermitted, match="session has ended"):
            state.admit(METADATA_KEY, 50, 100 + lifetime_ms)


def test_a_credential_that_has_expired_permits_nothing() -> None:
    state = state_of()
    log_in(state, b"alice expires=1", now_ms=7)
    with pytest.raises(NotPermitted, match="session has ended"):
        state.admit(METADATA_KEY, 50, 7)


def test_another_login_begins_another_session() -> None:
    state = state_of(5_000)
    log_in(state, now_ms=0)
    log_in(state, now_ms=6_000)
    assert Action.ORDINARY is state.admit(METADATA_KEY, 50, 10_999)
    with pytest.raises(NotPermitted):
        state.admit(METADATA_KEY, 50, 11_000)


def test_between_the_tokens_of_another_login_nothing_else_is_permitted() -> None:
    state = state_of(10_000)
    log_in(state)
    state.admit(HANDSHAKE_KEY, 50, 5_000)
    state.choose("A", 1, WALL_MS)
    with pytest.raises(NotPermitted):
        state.admit(METADATA_KEY, 50, 5_000)


def test_another_login_so_soon_is_an_ordinary_request() -> None:
    state = state_of(10_000)
    log_in(state)
    log_in(state, now_ms=1)
    assert Action.ORDINARY is state.admit(HANDSHAKE_KEY, 50, LOGIN_INTERVAL_MS)
    assert Action.HANDSHAKE is state.admit(HANDSHAKE_KEY, 50, 1 + LOGIN_INTERVAL_MS)


def test_another_login_as_somebody_else_fails() -> None:
    state = state_of(10_000)
    log_in(state)
    with pytest.raises(AuthenticationFailed, match=r"Cannot change principals .* User:mallory"):
        log_in(state, b"mallory", now_ms=5_000)
    assert Principal("alice") == state.principal


def test_another_login_with_another_mechanism_fails_at_its_token() -> None:
    state = state_of(10_000)
    log_in(state)
    with pytest.raises(AuthenticationFailed, match="'B' requested by client is not supported"):
        log_in(state, mechanism="B", now_ms=5_000)


def test_there_is_no_other_login_in_a_session_without_end() -> None:
    state = state_of()
    log_in(state)
    assert Action.ORDINARY is state.admit(HANDSHAKE_KEY, 50, 10**9)

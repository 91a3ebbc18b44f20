"""Delegation tokens: times, permissions and refusals, as the controller of Apache Kafka decides."""

import hashlib
import hmac
from contextlib import nullcontext

import pytest

from kledger.security.delegation_token_state import (
    RENEWERS_MAX,
    DelegationToken,
    DelegationTokenConfig,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRefused,
    TooManyDelegationTokens,
    expired,
    new_token,
    renewed,
    scram_password,
)
from kledger.security.principal import Principal

ANN, BOB, CYD, DAN = map(Principal, ("ann", "bob", "cyd", "dan"))
CONFIG = DelegationTokenConfig(secret_key="s3cret", max_lifetime_ms=1_000, expiry_time_ms=100)
NOW = 5_000


def token(
    *, max_lifetime_ms: int = -1, config: DelegationTokenConfig = CONFIG, now_ms: int = NOW
) -> DelegationToken:
    """A token of ann, requested by cyd, which bob may renew."""
    return new_token(
        config,
        token_id="t-1",
        owner=ANN,
        requester=CYD,
        renewers=[BOB],
        max_lifetime_ms=max_lifetime_ms,
        now_ms=now_ms,
    )


def test_the_hmac_is_that_of_the_id_under_the_secret() -> None:
    expected = hmac.new(b"s3cret", b"t-1", hashlib.sha512).digest()
    assert expected == CONFIG.hmac_of("t-1")
    assert 64 == len(expected)
    assert "AAEC/w==" == scram_password(b"\0\1\2\xff")


def test_a_secret_is_not_in_the_text_of_its_settings() -> None:
    assert "s3cret" not in repr(CONFIG)


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [(-1, 6_000, 5_100), (0, 6_000, 5_100), (500, 5_500, 5_100), (50, 5_050, 5_050),
     (1 << 62, 6_000, 5_100)],
)  # fmt: skip
def test_a_new_token_lives_as_long_as_client_and_server_allow(
    asked_ms: int, max_ms: int, expiry_ms: int
) -> None:
    made = token(max_lifetime_ms=asked_ms)
    assert (NOW, max_ms, expiry_ms) == (made.issue_ms, made.max_ms, made.expiry_ms)


def test_owner_and_renewers_may_renew_and_the_requester_only_sees_it() -> None:
    made = token()
    assert [True, True, False, False] == [made.may_be_renewed_by(p) for p in (ANN, BOB, CYD, DAN)]
    assert [True, True, True, False] == [made.concerns(p) for p in (ANN, BOB, CYD, DAN)]


@pytest.mark.parametrize(
    ("period_ms", "expiry_ms"), [(-1, 5_150), (0, 5_150), (30, 5_080), (1 << 62, 5_150)]
)
def test_renewing_counts_from_now(period_ms: int, expiry_ms: int) -> None:
    after = renewed(token(), CONFIG, principal=BOB, period_ms=period_ms, now_ms=NOW + 50)
    assert expiry_ms == after.expiry_ms


def test_renewing_never_goes_beyond_the_maximum() -> None:
    made = token(max_lifetime_ms=120)
    after = renewed(made, CONFIG, principal=ANN, period_ms=-1, now_ms=NOW + 90)
    assert made.max_ms == after.expiry_ms == NOW + 120


@pytest.mark.parametrize(
    ("period_ms", "expiry_ms"), [(-1, None), (0, NOW), (30, NOW + 30), (1 << 62, NOW + 1_000)]
)
def test_expiring_sets_a_time_or_removes(period_ms: int, expiry_ms: int | None) -> None:
    after = expired(token(), principal=ANN, period_ms=period_ms, now_ms=NOW)
    assert expiry_ms == (None if after is None else after.expiry_ms)


def test_a_token_expires_behind_its_last_millisecond() -> None:
    made = token()
    assert [False, True] == [made.is_expired(made.expiry_ms + each) for each in (0, 1)]


@pytest.mark.parametrize(
    ("principal", "is_known", "now_ms", "error"),
    [
        (ANN, False, NOW, DelegationTokenNotFound),
        (ANN, True, NOW + 101, DelegationTokenExpired),
        (DAN, True, NOW + 101, DelegationTokenExpired),
        (CYD, True, NOW, DelegationTokenOwnerMismatch),
        (DAN, True, NOW, DelegationTokenOwnerMismatch),
    ],
)
def test_refusals_come_in_kafkas_order(
    principal: Principal, is_known: bool, now_ms: int, error: type[DelegationTokenRefused]
) -> None:
    made = token() if is_known else None
    with pytest.raises(error):
        renewed(made, CONFIG, principal=principal, period_ms=1, now_ms=now_ms)
    with pytest.raises(error):
        expired(made, principal=principal, period_ms=-1, now_ms=now_ms)


@pytest.mark.parametrize("count", [RENEWERS_MAX, RENEWERS_MAX + 1])
def test_renewers_have_a_limit(count: int) -> None:
    outcome = pytest.raises(TooManyDelegationTokens) if count > RENEWERS_MAX else nullcontext()
    with outcome:
        made = new_token(
            CONFIG,
            token_id="t",
            owner=ANN,
            requester=ANN,
            renewers=[Principal(f"r{number}") for number in range(count)],
            max_lifetime_ms=-1,
            now_ms=NOW,
        )
        assert count == len(made.renewers)

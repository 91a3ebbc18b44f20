"""Logins by a header: checked once a minute, refused without a word of the header."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.entropy import SeededEntropy
from kledger.security import authorization_header
from kledger.security.authorization_header import (
    HEADER_MAX,
    REMEMBERED_MS,
    AuthorizationHeader,
)
from kledger.security.credentials import ScramMechanism, make_credential
from kledger.security.delegation_token_state import DelegationTokenConfig
from kledger.security.delegation_tokens import open_users
from kledger.security.json_web_token import ClaimRules
from kledger.security.key_set import parse_key_set
from kledger.security.password_logins import PasswordLogins
from kledger.security.sasl.mechanism import AuthenticationFailed
from kledger.security.sasl.oauth_bearer_state import OAuthBearerState
from tests.gateway.running import until
from tests.security.login_words import RecordedLogins
from tests.security.token_words import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    NOW_S,
    claims,
    key_set_json,
    public,
    rsa_key,
    signed,
)

SHA_256 = ScramMechanism.SHA_256
KEYS = parse_key_set(key_set_json(public(rsa_key())))
RULES = ClaimRules(issuer=ISSUER, audiences=frozenset({AUDIENCE}))


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@asynccontextmanager
async def opened(
    limits: RecordedLogins,
    clock: ManualClock,
    *,
    has_tokens: bool = True,
    has_changes: bool = False,
) -> AsyncIterator[AuthorizationHeader]:
    async with LedgerStore.open(None, engine=FaultyEngine(None), clock=clock) as store:
        users, tokens = open_users(
            store,
            DelegationTokenConfig(),
            clock=clock,
            entropy=SeededEntropy(1),
            pool=store.compute_pool,
        )
        credential = make_credential(SHA_256, "pw:1", b"s", 4096)
        await users.alter({("ann", SHA_256.sasl_name): credential}.items())

        async def catch_up() -> None:
            changed = make_credential(SHA_256, "pw:2", b"s", 4096)
            await users.alter({("ann", SHA_256.sasl_name): changed}.items())

        limits.catch_up = catch_up if has_changes else None
        yield AuthorizationHeader(
            "native",
            passwords=PasswordLogins(users, {}, tokens),
            bearer=(lambda now_ms: OAuthBearerState(KEYS, RULES, now_ms)) if has_tokens else None,
            limits=limits,
            clock=clock,
        )


async def test_a_password_is_hashed_once_a_minute() -> None:
    limits, clock = RecordedLogins(), ManualClock(NOW_MS)
    async with opened(limits, clock) as header:
        for _ in range(3):
            assert "ann" == (await header.login(basic("ann", "pw:1"), "::1")).principal.name
        assert 1 == limits.work_count
        assert [("ann", "::1", "Basic", "native")] == limits.successes
        await header.login(basic("ann", "pw:1"), "::2")
        assert 2 == limits.work_count
        clock.advance(REMEMBERED_MS)
        await header.login(basic("ann", "pw:1"), "::1")
        assert 3 == limits.work_count


async def test_a_password_that_another_broker_has_changed_counts() -> None:
    limits, clock = RecordedLogins(), ManualClock(NOW_MS)
    async with opened(limits, clock, has_changes=True) as header:
        assert "ann" == (await header.login(basic("ann", "pw:2"), "::1")).principal.name


async def test_a_token_is_remembered_until_it_expires() -> None:
    limits, clock = RecordedLogins(), ManualClock(NOW_MS)
    token = signed(claims(exp=NOW_S + 10))
    async with opened(limits, clock) as header:
        found = await header.login(f"Bearer {token}", "::1")
        assert ("ann", NOW_MS + 10_000) == (found.principal.name, found.expires_at_ms)
        clock.advance(9_999)
        await header.login(f"bearer {token}", "::1")
        await header.login(f"Bearer {token}", "::1")
        assert 2 == limits.work_count
        clock.advance(30_001)
        with pytest.raises(AuthenticationFailed):
            await header.login(f"Bearer {token}", "::1")


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "Basic",
        "Basic ***",
        "Basic " + b64encode(b"ann").decode(),
        "Basic " + b64encode(b"\xff:\xff").decode(),
        "Digest ann",
        "Bearer",
        "Bearer no-token",
        "Bearer " + signed(claims(aud="other")),
        basic("ann", "wrong"),
        basic("bob", "pw:1"),
        "x" * (HEADER_MAX + 1),
    ],
)
async def test_a_refusal_is_logged_and_quotes_nothing(sent: str) -> None:
    limits = RecordedLogins()
    async with opened(limits, ManualClock(NOW_MS)) as header:
        with pytest.raises(AuthenticationFailed) as caught:
            await header.login(sent, "::1")
    ((address, reason),) = limits.failures
    assert "::1" == address
    assert [] == limits.successes
    credentials = sent.partition(" ")[2]
    for text in (str(caught.value), reason):
        assert not credentials or credentials not in text
        assert "pw:1" not in text
    assert caught.value.__cause__ is None


async def test_without_keys_tokens_are_refused() -> None:
    limits = RecordedLogins()
    async with opened(limits, ManualClock(NOW_MS), has_tokens=False) as header:
        with pytest.raises(AuthenticationFailed, match="expected Authorization"):
            await header.login(f"Bearer {signed()}", "::1")


async def test_a_failure_is_answered_late_and_many_are_refused_at_once() -> None:
    limits, clock = RecordedLogins(failure_delay_ms=100), ManualClock(NOW_MS)
    async with opened(limits, clock) as header:
        failing = asyncio.ensure_future(header.login(basic("ann", "wrong"), "::1"))
        await until(lambda: bool(limits.failures))
        assert 1 == len(limits.failures)
        assert not failing.done()
        clock.advance(100)
        with pytest.raises(AuthenticationFailed):
            await failing
        limits.is_admitting = False
        with pytest.raises(AuthenticationFailed, match="too many"):
            await header.login(basic("ann", "pw:1"), "::1")
        assert 1 == limits.work_count


async def test_remembered_headers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization_header, "REMEMBERED_MAX", 2)
    limits = RecordedLogins()
    async with opened(limits, ManualClock(NOW_MS)) as header:
        for address in ("::1", "::2", "::3", "::3", "::1"):
            await header.login(basic("ann", "pw:1"), address)
        assert 4 == limits.work_count


class HeldLogins(RecordedLogins):
    """Work waits until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def run(self, work: Callable[[], Any]) -> Any:
        self.work_count += 1
        await self.gate.wait()
        return work()


async def test_calls_that_come_together_are_one_login() -> None:
    limits = HeldLogins()
    async with opened(limits, ManualClock(NOW_MS)) as header:
        calls = [
            asyncio.ensure_future(header.login(basic("ann", "pw:1"), "::1")) for _ in range(50)
        ]
        await until(lambda: bool(limits.work_count))
        limits.gate.set()
        assert {"ann"} == {each.principal.name for each in await asyncio.gather(*calls)}
        assert 1 == limits.work_count == len(limits.successes)


async def test_a_cancelled_login_does_not_fail_the_others() -> None:
    limits = HeldLogins()
    async with opened(limits, ManualClock(NOW_MS)) as header:
        first, second = (
            asyncio.ensure_future(header.login(basic("ann", "pw:1"), "::1")) for _ in range(2)
        )
        await until(lambda: bool(limits.work_count))
        first.cancel()
        limits.gate.set()
        assert "ann" == (await second).principal.name


async def test_many_different_headers_of_an_address_are_refused() -> None:
    """Guessing passwords in parallel must not keep the threads of all logins busy."""
    limits = HeldLogins()
    async with opened(limits, ManualClock(NOW_MS)) as header:
        guesses = [
            asyncio.ensure_future(header.login(basic("ann", f"guess-{number}"), "::1"))
            for number in range(authorization_header.CHECKS_OF_ADDRESS_MAX)
        ]
        await until(lambda: limits.work_count == len(guesses))
        with pytest.raises(AuthenticationFailed, match="at once"):
            await header.login(basic("ann", "pw:1"), "::1")
        limits.gate.set()
        assert "ann" == (await header.login(basic("ann", "pw:1"), "::2")).principal.name
        outcomes = await asyncio.gather(*guesses, return_exceptions=True)
        assert {AuthenticationFailed} == {type(each) for each in outcomes}

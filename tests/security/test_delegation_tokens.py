"""Stored tokens: durable, indexed by HMAC and owner, gone when they have expired."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.ledger import LedgerError, LedgerStore, UnreadableRow
from kledger.ledger.record_table import submit_together
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.blocking import InlinePool
from kledger.runtime.entropy import SeededEntropy
from kledger.security import delegation_tokens
from kledger.security.credentials import (
    PLAIN,
    ScramMechanism,
    is_password_of,
    make_credential,
)
from kledger.security.delegation_token_state import (
    DelegationTokenConfig,
    DelegationTokenNotFound,
    DelegationTokensDisabled,
    TooManyDelegationTokens,
    scram_password,
)
from kledger.security.delegation_tokens import DelegationTokens, IssuedToken, open_users
from kledger.security.principal import Principal
from kledger.security.sasl.token_login import finding_tokens

ANN, BOB = Principal("ann"), Principal("bob")
CONFIG = DelegationTokenConfig(secret_key="s3cret", max_lifetime_ms=1_000, expiry_time_ms=100)


@asynccontextmanager
async def opened(
    engine: FaultyEngine | None = None,
    clock: ManualClock | None = None,
    config: DelegationTokenConfig = CONFIG,
    seed: int = 1,
) -> AsyncIterator[DelegationTokens]:
    clock = clock or ManualClock(5_000)
    async with LedgerStore.open(None, engine=engine or FaultyEngine(None), clock=clock) as store:
        yield DelegationTokens(
            store, config, clock=clock, entropy=SeededEntropy(seed), pool=InlinePool()
        )


async def create(tokens: DelegationTokens, owner: Principal = ANN) -> IssuedToken:
    return await tokens.create(owner=owner, requester=ANN, renewers=[BOB], max_lifetime_ms=-1)


def found(tokens: DelegationTokens, made: IssuedToken, now_ms: int = 5_000) -> object:
    stored = tokens.find(made.token.token_id, now_ms)
    return None if stored is None else stored.token


async def test_tokens_survive_a_restart_without_their_hmac_on_disk() -> None:
    engine, clock = FaultyEngine(None), ManualClock(5_000)
    async with opened(engine, clock) as tokens:
        made = await create(tokens)
        assert [made] == list(tokens.all())
    async with opened(engine, clock) as tokens:
        assert made.token == found(tokens, made)
        assert 5_060 == (await tokens.renew(made.hmac, BOB, 60)).expiry_ms
    async with LedgerStore.open(None, engine=engine, clock=clock) as store:
        rows = b"".join(key + row for key, row in store.scan_rows(delegation_tokens.PREFIX))
    assert made.token.token_id.encode() in rows
    assert made.hmac not in rows


async def test_another_secret_invalidates_every_token() -> None:
    engine, clock = FaultyEngine(None), ManualClock(5_000)
    async with opened(engine, clock) as tokens:
        made = await create(tokens)
    other = DelegationTokenConfig(secret_key="other")
    async with opened(engine, clock, other) as tokens:
        assert found(tokens, made) is None
        assert [] == list(tokens.all())
        with pytest.raises(DelegationTokenNotFound):
            await tokens.renew(made.hmac, ANN, -1)


async def test_without_a_secret_there_are_no_tokens() -> None:
    engine, clock = FaultyEngine(None), ManualClock(5_000)
    async with opened(engine, clock) as tokens:
        made = await create(tokens)
    async with opened(engine, clock, DelegationTokenConfig()) as tokens:
        assert not tokens.is_enabled
        assert found(tokens, made) is None
        for call in (
            create(tokens),
            tokens.renew(made.hmac, ANN, -1),
            tokens.expire(made.hmac, ANN, -1),
        ):
            with pytest.raises(DelegationTokensDisabled):
                await call
        with pytest.raises(DelegationTokensDisabled):
            tokens.all()


async def test_an_expired_token_opens_nothing_and_is_removed() -> None:
    clock = ManualClock(5_000)
    async with opened(clock=clock) as tokens:
        made, other = await create(tokens), await create(tokens)
        await tokens.renew(other.hmac, BOB, -1)
        assert 5_050 == (await tokens.expire(made.hmac, BOB, 50)).expiry_ms
        clock.advance(50)
        assert 0 == await tokens.remove_expired()
        assert found(tokens, made, clock.now_ms()) is not None
        clock.advance(1)
        assert found(tokens, made, clock.now_ms()) is None
        assert 1 == await tokens.remove_expired()
        assert [other.token.token_id] == [each.token.token_id for each in tokens.all()]


async def test_a_removed_token_is_unknown_at_once() -> None:
    async with opened() as tokens:
        made = await create(tokens)
        assert 5_000 == (await tokens.expire(made.hmac, ANN, -1)).expiry_ms
        assert found(tokens, made) is None
        with pytest.raises(DelegationTokenNotFound):
            await tokens.expire(made.hmac, ANN, -1)


async def test_the_tokens_of_a_user_go_with_the_user() -> None:
    async with opened() as tokens:
        mine, others = await create(tokens), await create(tokens, BOB)
        assert await submit_together(tokens.removals_of(ANN)) is None
        assert [others] == list(tokens.all())
        assert [] == tokens.removals_of(ANN)
        with pytest.raises(DelegationTokenNotFound):
            await tokens.renew(mine.hmac, ANN, -1)


async def test_the_last_credential_of_a_user_takes_the_tokens_along() -> None:
    clock, entropy = ManualClock(5_000), SeededEntropy(1)
    one = make_credential(ScramMechanism.SHA_256, "one", b"salt", 4096)
    async with LedgerStore.open(None, clock=clock) as store:
        users, tokens = open_users(
            store, CONFIG, clock=clock, entropy=entropy, pool=store.compute_pool
        )
        await users.alter({("ann", PLAIN): one, ("ann", "SCRAM-SHA-256"): one}.items())
        made = await create(tokens)
        await users.alter({("ann", PLAIN): None, ("bob", PLAIN): one}.items())
        await users.alter({("bob", PLAIN): None}.items())
        assert found(tokens, made) is not None
        await users.alter({("ann", "SCRAM-SHA-256"): None}.items())
        assert found(tokens, made) is None


async def test_tokens_go_with_their_user_without_the_secret_too() -> None:
    """A command that removes a user of a stopped store does not know the server's secret."""
    engine, clock = FaultyEngine(None), ManualClock(5_000)
    async with opened(engine, clock) as tokens:
        made = await create(tokens)
    async with opened(engine, clock, DelegationTokenConfig()) as tokens:
        assert await submit_together(tokens.removals_of(ANN)) is None
    async with opened(engine, clock) as tokens:
        assert found(tokens, made) is None


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_the_hmac_is_the_password_of_a_login(mechanism: ScramMechanism) -> None:
    async with opened() as tokens:
        made = await create(tokens)
        find = finding_tokens(tokens)
        known = find(mechanism, made.token.token_id, 5_000)
        assert known is not None
        assert (ANN, 5_100) == (known.principal, known.expires_at_ms)
        assert is_password_of(mechanism, known.credential, scram_password(made.hmac))
        assert find(mechanism, made.token.token_id, 5_101) is None
        assert find(mechanism, "unknown", 5_000) is None


async def test_a_failed_write_changes_nothing() -> None:
    engine = FaultyEngine(None)
    async with opened(engine) as tokens:
        made = await create(tokens)
        for call in (
            lambda: create(tokens),
            lambda: tokens.renew(made.hmac, ANN, 10),
            lambda: tokens.expire(made.hmac, ANN, -1),
        ):
            engine.fail_next("commit")
            with pytest.raises(LedgerError):
                await call()
        assert [made] == list(tokens.all())


async def test_tokens_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "TOKENS_OF_OWNER_MAX", 2)
    monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 3)
    monkeypatch.setattr(delegation_tokens, "REMOVED_AT_ONCE_MAX", 2)
    clock = ManualClock(5_000)
    async with opened(clock=clock) as tokens:
        for _ in range(2):
            await create(tokens)
        with pytest.raises(TooManyDelegationTokens, match="User:ann"):
            await create(tokens)
        await create(tokens, BOB)
        with pytest.raises(TooManyDelegationTokens, match="3 tokens"):
            await create(tokens, BOB)
        clock.advance(101)
        assert [2, 1, 0] == [await tokens.remove_expired() for _ in range(3)]
        assert await create(tokens)


GOLDEN_KEY = b"security/delegation_tokens/9bFlIkpYR5GfavHYMD5hzQ"
GOLDEN_ROW = bytes.fromhex(
    "01c71b199000163962466c496b705952354766617648594d4435687a510003616e6e0004557365720003"
    "616e6e000455736572000000010003626f62000455736572000000000000138800000000000017700000"
    "0000000013ec000000202451a6380f5a0d45af1237e110a655bd5fbbef71d707f260f99800ebc4b6cd69"
    "00000020c4bb86c3d1c427103c344c4189eb2f1e7bd5d47e446fcec2a3d811736110e57800000020406f"
    "31b8f77f1681e6a6bcd73e2ca168112e00aea74be876d8944629d9c22d2f0000002061d9f7ce4bf83da3"
    "6d99b4b228e5764c72768fb3759a23c5bdfe99ca6c10db8f0000100000000020c4bb86c3d1c427103c34"
    "4c4189eb2f1e7bd5d47e446fcec2a3d811736110e578000000404fa7870482813f57b1ccb3a7c9726c30"
    "e343a346816c28250e83edf015534a03bf3bf59cd65d5662157d68239a808512d4410ec9856d51f5ae68"
    "e120c20597e40000004099450cfd8632c3cdabfe8e32e6954e0a7eb52f03273d95b2423a92f8fe67bf83"
    "f1daf4b155fd2f9ee19e6658a8aa4c4138f224d759f3c1d05e7deab70a57397600001000"
)


async def test_a_row_is_written_and_read_as_ever() -> None:
    """A store of an older program is opened by a newer one: these bytes never change."""
    engine, clock = FaultyEngine(None), ManualClock(5_000)
    async with opened(engine, clock) as tokens:
        made = await create(tokens)
    async with LedgerStore.open(None, engine=engine, clock=clock) as store:
        assert [(GOLDEN_KEY, GOLDEN_ROW)] == store.scan_rows(delegation_tokens.PREFIX)
    async with opened(engine, clock) as tokens:
        assert [made] == list(tokens.all())


async def test_a_row_that_cannot_be_read_ends_the_start() -> None:
    engine, clock = FaultyEngine(None), ManualClock(5_000)
    async with LedgerStore.open(None, engine=engine, clock=clock) as store:
        await store.put_rows([(GOLDEN_KEY, GOLDEN_ROW[:-1])])
    with pytest.raises(UnreadableRow, match="9bFlIkpYR5GfavHYMD5hzQ"):
        async with opened(engine, clock):
            pass

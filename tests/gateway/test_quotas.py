"""Stored quotas: they are there after a restart, and a failed write changes nothing."""

import pytest

from gateway.quota_state import CLIENT_ID, USER, Entity
from gateway.quotas import REQUEST_THROTTLE_MS_MAX, Quotas
from ledger import LedgerStore
from ledger.testing import FaultyEngine, ManualClock
from topics.errors import StorageFailed

DEFAULT: Entity = ((CLIENT_ID, None), (USER, "ü"))
ALL = {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0, "request_percentage": 2.5}
EVERY_CLIENT: Entity = ((CLIENT_ID, None),)


async def test_quotas_survive_a_restart_and_can_be_forgotten() -> None:
    engine, clock = FaultyEngine(None), ManualClock()
    for stored, new in ((None, ALL), (ALL, {}), (None, {})):
        async with LedgerStore.open(None, engine=engine, clock=clock) as store:
            quotas = Quotas(store, clock)
            assert ({} if stored is None else {DEFAULT: stored}) == quotas.state.quotas
            await quotas.put(DEFAULT, new)
            assert ({DEFAULT: new} if new else {}) == quotas.state.quotas


async def test_a_failed_write_changes_nothing() -> None:
    engine, clock = FaultyEngine(None), ManualClock()
    async with LedgerStore.open(None, engine=engine, clock=clock) as store:
        quotas = Quotas(store, clock)
        engine.fail_next("commit")
        with pytest.raises(StorageFailed):
            await quotas.put(DEFAULT, ALL)
        assert {} == quotas.state.quotas


async def test_each_use_is_charged_to_its_own_quota() -> None:
    clock = ManualClock()
    async with LedgerStore.open(None, clock=clock) as store:
        quotas = Quotas(store, clock)
        await quotas.put(EVERY_CLIENT, ALL)
        assert 1_000 == quotas.charge_produce("a", 110)
        assert 1_000 == quotas.charge_fetch("a", 220)
        # 2.5 % are 25 ms a second: 250 ms may be used at first.
        assert 0 == quotas.charge_time("a", 250)
        assert 400 == quotas.charge_time("a", 10)
        assert REQUEST_THROTTLE_MS_MAX == quotas.charge_time("a", 1_000)
        assert 0 == quotas.charge_produce("b", 100)

"""Stored quotas: they are there after a restart, and a failed write changes nothing."""

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.quotas.client_quotas import ClientQuotas
from kledger.gateway.quotas.quota_state import CLIENT_ID, USER, Entity
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.security.principal import ANONYMOUS, Principal
from kledger.topics.errors import TopicStorageFailed

DEFAULT: Entity = ((CLIENT_ID, None), (USER, "ü"))
ALL = {
    "producer_byte_rate": 10.0,
    "consumer_byte_rate": 20.0,
    "request_percentage": 2.5,
    "controller_mutation_rate": 1.0,
}
EVERY_CLIENT: Entity = ((CLIENT_ID, None),)


async def test_quotas_survive_a_restart_and_can_be_forgotten() -> None:
    engine, clock = FaultyEngine(None), ManualClock()
    for stored, new in ((None, ALL), (ALL, {}), (None, {})):
        async with LedgerStore.open(None, engine=engine, clock=clock) as store:
            quotas = ClientQuotas(store, clock, GatewayConfig())
            assert ({} if stored is None else {DEFAULT: stored}) == quotas.state.quotas
            await quotas.put(DEFAULT, new)
            assert ({DEFAULT: new} if new else {}) == quotas.state.quotas


async def test_a_failed_write_changes_nothing() -> None:
    engine, clock = FaultyEngine(None), ManualClock()
    async with LedgerStore.open(None, engine=engine, clock=clock) as store:
        quotas = ClientQuotas(store, clock, GatewayConfig())
        engine.fail_next("commit")
        with pytest.raises(TopicStorageFailed):
            await quotas.put(DEFAULT, ALL)
        assert {} == quotas.state.quotas


async def test_each_use_is_charged_to_its_own_quota() -> None:
    clock = ManualClock()
    async with LedgerStore.open(None, clock=clock) as store:
        quotas = ClientQuotas(store, clock, GatewayConfig())
        await quotas.put(EVERY_CLIENT, ALL)
        assert 1_000 == quotas.charge_produce(ANONYMOUS, "a", 110)
        assert 1_000 == quotas.charge_fetch(ANONYMOUS, "a", 220)
        # 2.5 % are 25 ms a second: 250 ms may be used at first.
        assert 0 == quotas.charge_time(ANONYMOUS, "a", 250)
        assert 400 == quotas.charge_time(ANONYMOUS, "a", 10)
        assert 1_000 == quotas.charge_time(ANONYMOUS, "a", 1_000)
        assert 0 == quotas.charge_produce(ANONYMOUS, "b", 100)
        assert 1_000 == quotas.charge_mutations(ANONYMOUS, "a", 12)
        assert 200 == quotas.fetch_bytes_max(ANONYMOUS, "a")


async def test_windows_are_set_under_kafkas_names() -> None:
    config = GatewayConfig(
        quota_window_num=3,
        quota_window_size_seconds=2,
        controller_quota_window_num=2,
        controller_quota_window_size_seconds=3,
    )
    clock = ManualClock()
    async with LedgerStore.open(None, clock=clock) as store:
        quotas = ClientQuotas(store, clock, config)
        await quotas.put(EVERY_CLIENT, ALL)
        await quotas.put((("ip", None),), {"connection_creation_rate": 1.0})
        assert 1_000 == quotas.charge_produce(ANONYMOUS, "a", 50)
        assert 1_000 == quotas.charge_mutations(ANONYMOUS, "a", 7)
        assert 2_000 == quotas.charge_time(ANONYMOUS, "a", 1_000)
        assert [0] * 4 + [1_000] == [quotas.admit_connection("::1") for _ in range(5)]


async def test_one_sample_is_a_window_too() -> None:
    clock = ManualClock()
    async with LedgerStore.open(None, clock=clock) as store:
        quotas = ClientQuotas(store, clock, GatewayConfig(quota_window_num=1))
        await quotas.put(EVERY_CLIENT, ALL)
        assert 0 == quotas.charge_produce(ANONYMOUS, "a", 10)


async def test_users_and_anonymous_clients_have_their_own_quotas() -> None:
    """The quota of a user with a client id counts before the user's, and this before a client's."""
    clock = ManualClock()
    rates: dict[Entity, float] = {
        ((CLIENT_ID, "app"), (USER, "ann")): 10.0,
        ((USER, "ann"),): 20.0,
        ((CLIENT_ID, "app"), (USER, None)): 30.0,
        ((USER, None),): 40.0,
        ((CLIENT_ID, "app"),): 50.0,
        ((USER, ANONYMOUS.name),): 60.0,
    }
    async with LedgerStore.open(None, clock=clock) as store:
        quotas = ClientQuotas(store, clock, GatewayConfig())
        for entity, rate in rates.items():
            await quotas.put(entity, {"consumer_byte_rate": rate})
        clients = [
            (Principal("ann"), "app"),
            (Principal("ann"), "other"),
            (Principal("bob"), "app"),
            (Principal("bob"), "other"),
            (ANONYMOUS, "app"),
        ]
        assert [100, 200, 300, 400, 600] == [quotas.fetch_bytes_max(*each) for each in clients]


async def test_what_one_user_uses_is_not_counted_for_another() -> None:
    clock = ManualClock()
    async with LedgerStore.open(None, clock=clock) as store:
        quotas = ClientQuotas(store, clock, GatewayConfig())
        await quotas.put(((USER, None),), ALL)
        ann, bob = Principal("ann"), Principal("bob")
        assert 1_000 == quotas.charge_produce(ann, "app", 110)
        assert 0 == quotas.charge_produce(bob, "app", 100)
        assert 2_000 == quotas.charge_produce(ann, "other", 10)
        assert 1_000 == quotas.charge_mutations(ann, "app", 12)
        assert 0 == quotas.charge_mutations(bob, "app", 11)

"""Which fetch sessions begin, go on and end; rows 65 to 68 of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.fetch import session as sessions
from kledger.gateway.fetch.session_state import EVICTION_MS
from kledger.gateway.wire.messages.k01_fetch import ForgottenTopic
from tests.gateway.running import fetch, running_gateway
from tests.gateway.session_client import BY_ID, BY_NAME, Session, write
from tests.gateway.wire_client import WireClient


async def refused(client: WireClient, session_id: int, epoch: int, version: int = BY_NAME) -> int:
    request = fetch({})
    request.topics, request.session_id, request.session_epoch = [], session_id, epoch
    response = await client.ask(request, version)
    assert ([], 0) == (response.responses, response.session_id)
    return int(response.error_code)


async def test_row_65_a_session_begins_continues_and_ends() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=3)
        session = Session(client)
        assert {0, 1, 2} == set(await session.fetch({0: 0, 1: 0, 2: 0}))
        assert session.session_id > 0
        assert {} == await session.fetch()
        assert 71 == await refused(client, session.session_id, 1)
        assert 70 == await refused(client, session.session_id + 1, 1)
        assert 71 == await refused(client, session.session_id, -2)
        assert 70 == await refused(client, 0, -2)
        await write(client, b"news", partition=1)
        changed = await session.fetch()
        assert [1] == list(changed)
        assert b"news" in changed[1][2]
        final = session.request({0: 0})
        final.session_epoch = -1
        response = await client.ask(final, BY_NAME)
        assert (0, 0, 1) == (response.error_code, response.session_id, len(response.responses))
        assert 70 == await refused(client, session.session_id, session.epoch)


async def test_row_66_an_error_is_sent_every_time() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        session = Session(client)
        await session.fetch({0: 0, 7: 0})
        for _ in range(3):
            assert {7: (3, -1, b"")} == await session.fetch()


async def test_row_67_a_session_keeps_its_form_of_topics() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        session = Session(client)
        await session.fetch({0: 0})
        assert 106 == await refused(client, session.session_id, session.epoch, BY_ID)


async def test_row_68_a_session_without_partitions_ends() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        session = Session(client)
        await session.fetch({0: 0, 1: 0})
        session_id = session.session_id
        request = session.request()
        request.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0, 1])]
        assert {} == session.took(await client.ask(request, BY_NAME))
        assert 0 == session.session_id
        assert 70 == await refused(client, session_id, 2)


@pytest.mark.parametrize(("slots", "waited_ms", "is_made"), [
    (0, 0, False), (1, EVICTION_MS, False), (1, EVICTION_MS + 1, True), (2, 0, True)
])  # fmt: skip
async def test_no_more_sessions_than_slots(slots: int, waited_ms: int, is_made: bool) -> None:
    config = GatewayConfig(max_incremental_fetch_session_cache_slots=slots)
    async with running_gateway(config) as gateway, gateway.client() as client:
        topic = await gateway.create_topic(partitions=2)
        first, second = Session(client), Session(client)
        await first.fetch({0: 0, 1: 0})
        assert (slots > 0) == (first.session_id > 0)
        gateway.clock.advance(waited_ms)
        await second.fetch({0: 0})
        assert is_made == (second.session_id > 0)
        log = topic.partition(1)
        assert log is not None
        is_first_there = slots == 2 or (slots == 1 and not is_made)
        assert is_first_there == bool(log._listeners)


async def test_sessions_keep_so_many_partitions_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PARTITIONS_MAX", 3)
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=4)
        first, second, third = (Session(client) for _ in range(3))
        await first.fetch({0: 0, 1: 0})
        assert {0, 1} == set(await second.fetch({0: 0, 1: 0})), "served, but without a session"
        assert 0 == second.session_id
        await third.fetch({0: 0})
        before = third.session_id
        await third.fetch({3: 0})
        assert 0 == third.session_id, "it has grown too much"
        assert 70 == await refused(client, before, 2)
        third.epoch = 0
        await third.fetch({3: 0})
        assert third.session_id > 0


async def test_a_new_session_of_the_same_client_ends_the_one_before() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        session = Session(client)
        await session.fetch({0: 0})
        before, session.epoch = session.session_id, 0
        await session.fetch({0: 0})
        assert before != session.session_id
        assert 70 == await refused(client, before, 1)


async def test_a_session_may_begin_without_partitions() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        await write(client, b"a")
        session = Session(client)
        assert {} == await session.fetch()
        assert session.session_id
        found = await session.fetch({0: 0})
        assert b"a" in found[0][2]

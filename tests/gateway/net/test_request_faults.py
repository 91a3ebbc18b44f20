"""Requests that fail, wait or come late where a test wants it; all others are served as always."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.net.request_faults import KNOWN_APIS, RequestFaults, RequestHold, api_key_of
from kledger.gateway.served_apis import HANDLERS
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from tests.gateway.running import RunningGateway, batch, fetch, produce, running_gateway, until

PRODUCE_V, FETCH_V, METADATA_V, HEARTBEAT_V = 9, 12, 12, 4


@asynccontextmanager
async def faulty_gateway() -> AsyncIterator[tuple[RunningGateway, RequestFaults]]:
    faults = RequestFaults()
    config = GatewayConfig(connections_max_idle_ms=0)
    async with running_gateway(config, make_connection=faults.make_connection) as gateway:
        await gateway.create_topic()
        yield gateway, faults


async def test_failed_produce_is_answered_and_appends_nothing() -> None:
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        faults.fail_next("Produce", error="NOT_LEADER_OR_FOLLOWER")
        codes = []
        for _ in range(2):
            answer = await client.ask(produce({0: batch(b"x")}), PRODUCE_V)
            codes.append(answer.responses[0].partition_responses[0].error_code)
        assert [6, 0] == codes
        (topic,) = gateway.services.registry.all()
        assert 1 == (await topic.open_partition(0)).high_watermark


async def test_failed_produce_is_answered_in_the_order_of_requests() -> None:
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        hold = gateway.engine.hold_next("commit")
        client.send(produce({0: batch(b"first")}), PRODUCE_V)
        await hold.reached()
        faults.fail_next(0, error=6)
        client.send(produce({0: batch(b"second")}), PRODUCE_V)
        await until(lambda: not faults.armed_count)
        hold.release()
        for code in (0, 6):
            answer = await client.receive()
            assert code == answer.responses[0].partition_responses[0].error_code


async def test_failure_without_an_error_or_an_answer_closes_that_connection_alone() -> None:
    async with faulty_gateway() as (gateway, faults), gateway.client() as bystander:
        for request, version, error in (
            (HeartbeatRequest(group_id="g"), HEARTBEAT_V, None),
            (produce({0: batch(b"x")}, acks=0), PRODUCE_V, "NOT_LEADER_OR_FOLLOWER"),
            (MetadataRequest(topics=[]), METADATA_V, "LEADER_NOT_AVAILABLE"),
        ):
            faults.fail_next(type(request).__api__.key, error=error)
            async with gateway.client() as client:
                client.send(request, version, is_answered=False)
                assert await client.is_closed_by_server()
        assert await bystander.ask(MetadataRequest(topics=[]), METADATA_V)


async def test_failed_metadata_of_all_topics_still_names_the_broker() -> None:
    """Clients take no notice of an answer without brokers."""
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        faults.fail_next("Metadata", error="LEADER_NOT_AVAILABLE")
        answer = await client.ask(MetadataRequest(topics=None), METADATA_V)
        assert [("t", 5)] == [(each.name, each.error_code) for each in answer.topics]
        (broker,) = answer.brokers
        assert (gateway.host, gateway.port) == (broker.host, broker.port)


async def test_failed_fetch_of_a_session_reaches_its_partitions() -> None:
    """An incremental fetch names no partition, so the client has to name all of them again."""
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        first = fetch({0: 0})
        first.session_epoch = 0
        session_id = (await client.ask(first, FETCH_V)).session_id
        faults.fail_next("Fetch", error="NOT_LEADER_OR_FOLLOWER")
        going_on = FetchRequest(session_id=session_id, session_epoch=1)
        answer = await client.ask(going_on, FETCH_V)
        assert (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, []) == (answer.error_code, answer.responses)
        answer = await client.ask(first, FETCH_V)
        assert (0, 6) == (answer.error_code, answer.responses[0].partitions[0].error_code)


async def test_held_request_stops_its_own_connection_until_it_is_released() -> None:
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        hold, second = faults.hold_next("Heartbeat"), faults.hold_next("Heartbeat")
        client.send(HeartbeatRequest(group_id="g"), HEARTBEAT_V)
        client.send(HeartbeatRequest(group_id="g"), HEARTBEAT_V)
        await hold.reached()
        async with gateway.client() as other:
            assert await other.ask(MetadataRequest(topics=[]), METADATA_V)
        assert hold.is_waiting
        assert not second.is_waiting, "one request uses up one fault"
        hold.release()
        assert 25 == (await client.receive()).error_code
        await second.reached()
        second.fail("REBALANCE_IN_PROGRESS")
        assert 27 == (await client.receive()).error_code


async def test_held_request_of_a_closed_connection_harms_no_other() -> None:
    async with faulty_gateway() as (gateway, faults):
        hold = faults.hold_next("Heartbeat")
        async with gateway.client() as client:
            client.send(HeartbeatRequest(group_id="g"), HEARTBEAT_V, is_answered=False)
            await hold.reached()
        hold.release()
        await until(lambda: not gateway.server.connections)
        assert await client_is_served(gateway)


async def test_delayed_request_begins_later_by_the_clock_of_the_server() -> None:
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        faults.delay_next("Heartbeat", 500)
        sleepers = gateway.clock.sleeper_count
        client.send(HeartbeatRequest(group_id="g"), HEARTBEAT_V)
        await until(lambda: gateway.clock.sleeper_count > sleepers)
        answer = asyncio.ensure_future(client.receive())
        gateway.clock.advance(499)
        assert await client_is_served(gateway)
        assert not answer.done()
        gateway.clock.advance(1)
        assert 25 == (await answer).error_code


async def client_is_served(gateway: RunningGateway) -> bool:
    async with gateway.client() as other:
        return bool(await other.ask(MetadataRequest(topics=[]), METADATA_V))


async def test_cleared_faults_are_not_met_and_holds_go_on() -> None:
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        hold = faults.hold_next("Heartbeat")
        faults.fail_next("Heartbeat")
        client.send(HeartbeatRequest(group_id="g"), HEARTBEAT_V)
        await hold.reached()
        faults.clear()
        assert 25 == (await client.receive()).error_code
        assert 25 == (await client.ask(HeartbeatRequest(group_id="g"), HEARTBEAT_V)).error_code


async def test_stopping_server_does_not_wait_for_what_is_held() -> None:
    async with faulty_gateway() as (gateway, faults), gateway.client() as client:
        hold = faults.hold_next("Heartbeat")
        client.send(HeartbeatRequest(group_id="g"), HEARTBEAT_V, is_answered=False)
        await hold.reached()
        await gateway.server.stop()
        assert await client.is_closed_by_server()
    hold.release()


def test_program_without_a_loop_waits_for_what_is_held() -> None:
    hold = RequestHold()
    with pytest.raises(TimeoutError, match="no such request began within 1 ms"):
        hold.wait_reached(timeout_ms=1)
    decided: list[object] = []
    thread = Thread(target=lambda: decided.append(asyncio.run(hold.decision())))
    thread.start()
    hold.wait_reached()
    hold.release()
    thread.join()
    assert [None] == decided


def test_apis_go_by_kafkas_names_and_keys() -> None:
    assert {spec.key for spec in HANDLERS} == set(KNOWN_APIS.values())
    assert [0, 22, 68] == [
        api_key_of(each) for each in ("Produce", "InitProducerId", "consumer_group_heartbeat")
    ]
    assert 0 == api_key_of(0)


@pytest.mark.parametrize(
    ("api", "error", "message"),
    [
        ("Prodcue", None, "'Prodcue' is no API; did you mean Produce.* there are Produce, Fetch"),
        (999, None, "999 is no API; .*there are Produce, Fetch"),
        ("Produce", "NOT_LEADER", "'NOT_LEADER' is no error; .*there are UNKNOWN_SERVER_ERROR"),
        ("Produce", 9999, "9999 is no error; .*there are UNKNOWN_SERVER_ERROR"),
    ],
)
def test_wrong_name_is_refused_with_those_that_there_are(
    api: str | int, error: str | int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RequestFaults().fail_next(api, error=error)

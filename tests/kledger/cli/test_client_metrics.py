"""`kledger client-metrics` against a running server, and a client that pushes."""

import asyncio

import pytest

from kledger.gateway.wire.messages import k44_incremental_alter_configs as k44
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.gateway.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from kledger.gateway.wire.messages.k72_push_telemetry import PushTelemetryRequest
from kledger.gateway.wire.uuid_text import uuid_text
from kledger.process import ServerProcess
from kledger.setting_values import split_address
from tests.gateway.telemetry_words import ID, metrics_data
from tests.gateway.wire_client import WireClient
from tests.kledger.cli.serving import Capture, Shell

INSTANCE = uuid_text(ID)
CLIENT_METRICS = 16


@pytest.fixture
def shell(server: ServerProcess, capsys: Capture) -> Shell:
    return Shell(server.native_address, capsys, "client-metrics")


async def push(address: str, data: bytes) -> None:
    """Be a client that asks, pushes and goes."""
    want = k44.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name="all",
        configs=[k44.AlterableConfig(name="metrics", config_operation=0, value="*")],
    )
    hello = ApiVersionsRequest(client_software_name="lib", client_software_version="1.0")
    async with WireClient(*split_address("kafka", address)) as client:
        await client.ask(hello, 3)
        answer = await client.ask(k44.REQUEST(resources=[want]), 1)
        assert 0 == answer.responses[0].error_code
        result = await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=ID), 0)
        pushed = PushTelemetryRequest(
            client_instance_id=ID, subscription_id=result.subscription_id, metrics=data
        )
        assert 0 == (await client.ask(pushed, 0)).error_code


def test_clients_are_listed_and_what_they_pushed_is_shown(
    server: ServerProcess, shell: Shell
) -> None:
    headings = "INSTANCE CLIENT SOFTWARE ADDRESS SUBSCRIPTIONS PUSHED"
    assert [headings.split()] == [line.split() for line in shell("list").out]
    asyncio.run(push(server.kafka_address, metrics_data(a_rate=0.5, a_count=12_345_678.0)))
    _, line = shell("list").out
    assert [INSTANCE, "test", "lib", "1.0"] == line.split()[:4]
    (client,) = shell("list", "--json").json["clients"]
    assert (INSTANCE, ["all"]) == (client["instance_id"], client["subscriptions"])
    assert client["pushed_at_ms"] > 0

    about, pushed_at, *table = shell("show", INSTANCE).out
    assert about.startswith(f'{INSTANCE}: "test", "lib 1.0", 127.0.0.1:')
    assert pushed_at.startswith("pushed at 20")
    assert pushed_at.endswith("+00:00 for all")
    assert [
        ["METRIC", "VALUE", "COUNT", "UNIT", "KIND", "ATTRIBUTES"],
        ["a.count", "12345678", "-", "-", "gauge", "-"],
        ["a.rate", "0.5", "-", "-", "gauge", "-"],
    ] == [line.split() for line in table]
    shown = shell("show", INSTANCE, "--json").json
    assert [("a.count", 12_345_678.0), ("a.rate", 0.5)] == [
        (each["name"], each["value"]) for each in shown["metrics"]
    ]
    assert client == {name: shown[name] for name in client}


def test_unknown_instance_is_a_mistake(shell: Shell) -> None:
    for instance in ("AAAAAAAAAAAAAAAAAAAAAA", "nobody"):
        result = shell("show", instance)
        assert (2, []) == (result.code, result.out)
        assert [f"kledger: there is no client with the instance id {instance!r}"] == result.err

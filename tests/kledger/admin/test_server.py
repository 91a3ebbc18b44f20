"""The admin listener, over real sockets."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

import kledger.admin.listener
from kledger.admin.access import AdminAccess
from kledger.admin.server import AdminServer
from kledger.ledger import LedgerStore, StorageHealth
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.testing import ManualClock
from kledger.runtime.metrics import Metrics
from kledger.security.acl_state import (
    ANY_HOST,
    CLUSTER_NAME,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kledger.security.audit import AuditLog
from kledger.security.authorizer import Authorizer
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed


class Switch:
    """Whether the server of a test is serving."""

    is_on = True


@asynccontextmanager
async def running(
    metrics: Metrics,
    switch: Switch,
    health: StorageHealth | None = None,
    access: AdminAccess | None = None,
) -> AsyncIterator[str]:
    health = health or StorageHealth(ManualClock(), metrics)
    server = AdminServer(metrics, is_serving=lambda: switch.is_on, health=health, access=access)
    host, port = await server.start("127.0.0.1", 0)
    yield f"http://{host}:{port}"
    await server.stop()
    await server.stop()


async def test_health_is_what_clients_can_expect() -> None:
    switch = Switch()
    async with running(Metrics(), switch) as url, aiohttp.ClientSession() as client:
        for is_on, expected in ((True, (200, "serving\n")), (False, (503, "stopping\n"))):
            switch.is_on = is_on
            async with client.get(f"{url}/health") as response:
                assert expected == (response.status, await response.text())


async def test_health_shows_faults_of_the_storage_until_they_end() -> None:
    """A load balancer goes by the status: what can be served is served here only."""
    full = "no space left"
    switch, health = Switch(), StorageHealth(ManualClock(1_700_000_000_000), Metrics())
    async with running(Metrics(), switch, health) as url, aiohttp.ClientSession() as client:
        for _ in range(3):
            health.failed(StorageWriteFailed(full, full=True), "writing a group")
        async with client.get(f"{url}/health") as response:
            assert 200 == response.status
            first, line = (await response.text()).splitlines()
            at = "2023-11-14T22:13:20+00:00"
            assert "serving, degraded" == first
            assert f"disk_full: 3 times from {at} to {at}, last: writing a group: {full}" == line
        health.write_succeeded()
        async with client.get(f"{url}/health") as response:
            assert (200, "serving\n") == (response.status, await response.text())
        switch.is_on = False
        async with client.get(f"{url}/health") as response:
            assert 503 == response.status


async def test_metrics_are_those_of_the_server() -> None:
    metrics = Metrics()
    metrics.counter("hits").add(5)
    async with running(metrics, Switch()) as url, aiohttp.ClientSession() as client:
        async with client.get(f"{url}/metrics") as response:
            assert (200, "text/plain") == (response.status, response.content_type)
            assert "\nkledger_hits_total 5.0\n" in await response.text()
        async with client.post(f"{url}/metrics") as response:
            assert 405 == response.status
        async with client.get(f"{url}/nothing") as response:
            assert 404 == response.status


class Headers:
    """Every user has the password `right`."""

    async def login(self, header: str, address: str) -> Authenticated:
        user, password = b64decode(header.removeprefix("Basic ")).decode().split(":")
        if password != "right":
            raise AuthenticationFailed("wrong")
        return Authenticated(principal=Principal(user))


@asynccontextmanager
async def guarded(*, has_rules: bool = True) -> AsyncIterator[tuple[str, StorageHealth]]:
    """A server on which ann may describe the cluster."""
    clock, metrics = ManualClock(), Metrics()
    async with LedgerStore.open(None, clock=clock) as store:
        authorizer = Authorizer(store, clock)
        pattern = ResourcePattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)
        rule = AclRule(pattern, "User:ann", ANY_HOST, Operation.DESCRIBE, Permission.ALLOW)
        await authorizer.create([rule])
        access = AdminAccess(Headers(), authorizer if has_rules else None, AuditLog(clock))
        health = StorageHealth(clock, metrics)
        metrics.counter("hits").add(5)
        async with running(metrics, Switch(), health, access) as url:
            yield url, health


def header_of(user: tuple[str, str] | None) -> dict[str, str]:
    if user is None:
        return {}
    return {"Authorization": f"Basic {b64encode(':'.join(user).encode()).decode()}"}


USERS = {
    None: (401, False),
    ("ann", "right"): (200, True),
    ("ann", "wrong"): (401, False),
    ("bob", "right"): (403, False),
}


@pytest.mark.parametrize("user", USERS)
async def test_metrics_need_a_user_that_may_describe_the_cluster(
    user: tuple[str, str] | None,
) -> None:
    status, is_shown = USERS[user]
    headers = header_of(user)
    async with guarded() as (url, health), aiohttp.ClientSession(headers=headers) as client:
        async with client.get(f"{url}/metrics") as response:
            text = await response.text()
            assert (status, is_shown) == (response.status, "kledger_hits_total" in text)
            assert is_shown or not text
            assert (status == 401) == ("WWW-Authenticate" in response.headers)
        health.failed(StorageWriteFailed("full", full=True), "writing orders-0")
        async with client.get(f"{url}/health") as response:
            text = await response.text()
            assert 200 == response.status
            assert text.startswith("serving, degraded\n")
            assert is_shown == ("orders-0" in text)


async def test_without_rules_everybody_sees_the_metrics_but_a_wrong_login_does_not() -> None:
    async with guarded(has_rules=False) as (url, _):
        for user, status in ((None, 200), (("bob", "right"), 200), (("bob", "wrong"), 401)):
            async with (
                aiohttp.ClientSession(headers=header_of(user)) as client,
                client.get(f"{url}/metrics") as response,
            ):
                assert status == response.status


async def test_a_connection_too_many_is_closed_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kledger.admin.listener, "CONNECTIONS_MAX", 1)
    async with running(Metrics(), Switch()) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200 OK\r\n" == await reader.readline()
        refused, unused = await asyncio.open_connection(host, int(port))
        assert b"" == await refused.read()
        unused.close()
        writer.close()

"""Where keys come from: a file or a server; the last good keys stay while it is broken."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from kledger.ledger.testing import ManualClock
from kledger.runtime.blocking import InlinePool
from kledger.runtime.tasks import Supervisor
from kledger.security.json_web_token import TokenHeader
from kledger.security.key_set import KEY_SET_BYTES_MAX
from kledger.security.key_set_source import (
    POLL_MS,
    KeySetSource,
    KeySetUnavailable,
    fetching_with,
)
from tests.gateway.running import until
from tests.security.token_words import key_set_json, public, rsa_key

OLD, NEW = rsa_key(), rsa_key(number=1)
OLD_SET, NEW_SET = key_set_json(public(OLD)), key_set_json(public(NEW))
URL = "https://issuer.example/keys"


class Site:
    """What a URL has, and how often it was asked for."""

    def __init__(self) -> None:
        self.content: bytes | Exception = OLD_SET
        self.asked = 0

    async def fetch(self, _url: str) -> bytes:
        self.asked += 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content


@asynccontextmanager
async def running(
    url: str, site: Site, refresh_ms: int = 3_600_000
) -> AsyncIterator[tuple[KeySetSource, ManualClock]]:
    clock, supervisor = ManualClock(1), Supervisor()
    source = KeySetSource(
        url, refresh_ms=refresh_ms, clock=clock, supervisor=supervisor, fetch=site.fetch
    )
    await source.start()
    try:
        yield source, clock
    finally:
        await supervisor.close()


async def pass_time(clock: ManualClock, ms: int) -> None:
    """Move the clock, one poll at a time."""
    for _ in range(ms // POLL_MS):
        await until(lambda: bool(clock.sleeper_count))
        clock.advance(POLL_MS)
        await until(lambda: bool(clock.sleeper_count))


def has(source: KeySetSource, key: object) -> bool:
    return source.find(TokenHeader("RS256", key.kid)) is not None  # type: ignore[attr-defined]


async def test_a_changed_file_counts_within_20_seconds() -> None:
    site = Site()
    async with running("file:///keys.json", site) as (source, clock):
        assert (True, False) == (has(source, OLD), has(source, NEW))
        site.content = NEW_SET
        await pass_time(clock, 20_000)
        assert (False, True) == (has(source, OLD), has(source, NEW))


async def test_a_server_is_asked_at_its_interval() -> None:
    site = Site()
    async with running(URL, site, refresh_ms=60_000) as (source, clock):
        site.content = NEW_SET
        await pass_time(clock, 55_000)
        assert (1, True) == (site.asked, has(source, OLD))
        await pass_time(clock, 5_000)
        assert (2, False) == (site.asked, has(source, OLD))


async def test_a_key_that_is_missing_is_asked_for_soon_and_not_for_each_token() -> None:
    site = Site()
    async with running(URL, site) as (source, clock):
        site.content = NEW_SET
        for number in range(100):
            assert source.find(TokenHeader("RS256", f"unknown-{number}")) is None
        assert 1 == site.asked
        await pass_time(clock, POLL_MS)
        assert (2, True) == (site.asked, has(source, NEW))
        await pass_time(clock, 10 * POLL_MS)
        assert 2 == site.asked


@pytest.mark.parametrize(
    "broken", [OSError("gone"), ValueError("status 500"), b"{", b'{"keys":[]}']
)
async def test_a_broken_source_keeps_the_keys_and_is_logged_once(
    broken: bytes | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site()
    with caplog.at_level(logging.INFO):
        async with running("file:///keys.json", site) as (source, clock):
            site.content = broken
            await pass_time(clock, 3 * POLL_MS)
            assert has(source, OLD)
            site.content = NEW_SET
            await pass_time(clock, POLL_MS)
            assert has(source, NEW)
    messages = [record.getMessage() for record in caplog.records]
    assert 2 == len(messages)
    assert "stay as they were" in messages[0]
    assert "are read again" in messages[1]


@pytest.mark.parametrize("broken", [OSError("gone"), b"{", b'{"keys":[]}'])
async def test_without_keys_nothing_starts(broken: bytes | Exception) -> None:
    site = Site()
    site.content = broken
    with pytest.raises(KeySetUnavailable, match=r"issuer\.example"):
        async with running(URL, site):
            pass


async def test_files_are_read_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "a b.json"
    file.write_bytes(b"x" * (KEY_SET_BYTES_MAX + 10))
    fetch = fetching_with(InlinePool())
    assert KEY_SET_BYTES_MAX + 1 == len(await fetch(file.as_uri()))
    with pytest.raises(OSError, match="missing"):
        await fetch((tmp_path / "missing.json").as_uri())


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """A server with keys, an error, a redirect and an endless answer."""

    async def keys(_: web.Request) -> web.Response:
        return web.Response(body=OLD_SET)

    async def error(_: web.Request) -> web.Response:
        return web.Response(status=500)

    async def moved(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/keys"})

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)

    app = web.Application()
    for handler in (keys, error, moved, endless):
        app.router.add_get(f"/{handler.__name__}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def test_a_server_is_read_up_to_the_limit_and_never_leads_elsewhere() -> None:
    fetch = fetching_with(InlinePool())
    async with serving() as site:
        assert OLD_SET == await fetch(f"{site}/keys")
        for path, error in (("error", "500"), ("moved", "302"), ("endless", "at most")):
            with pytest.raises(ValueError, match=error):
                await fetch(f"{site}/{path}")
    with pytest.raises(OSError, match="ClientConnector"):
        await fetch(f"{site}/keys")

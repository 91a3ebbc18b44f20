"""How many of our files one request runs through; docs/ARCHITECTURE.md has the numbers.

A profile function notes the file of every call, in all threads, while one request is served. The
smallest number of several requests counts, as a timer may fire during one of them.
"""

import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import kledger
from kledger.gateway.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kledger.gateway.wire.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.testing import Server
from tests.gateway.running import batch, fetch, produce
from tests.gateway.wire_client import WireClient
from tests.tidy.sources import PACKAGES, ROOT

REPEATS = 12
"""Requests of each kind; the first ones also fill caches."""
DIFFERENCE_MAX = 3
GUARD_S = 60


class CalledFiles:
    """The files of the functions that are called."""

    def __init__(self) -> None:
        self._is_noting = False
        self._names: set[str] = set()

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note a call; this is the profile function."""
        if self._is_noting and event == "call":
            self._names.add(frame.f_code.co_filename)

    async def fewest(self, request: Callable[[], Awaitable[object]]) -> int:
        """Return the smallest number of our files that one of several requests runs through."""
        async with asyncio.timeout(GUARD_S):
            return min([await self._count(request) for _ in range(REPEATS)])

    async def _count(self, request: Callable[[], Awaitable[object]]) -> int:
        self._names.clear()
        self._is_noting = True
        try:
            await request()
        finally:
            self._is_noting = False
        return len({name for name in self._names if is_ours(name)})


def is_ours(name: str) -> bool:
    """Return whether a file is one of a package; the links in kledger lead to the folders."""
    path = Path(name).resolve()
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES


def check(request: str, measured: int) -> None:
    """Compare with the number in the document, which may be a few files off."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    [documented] = re.findall(rf"^\| {request} \((\d+)\) \|", text, re.MULTILINE)
    assert abs(measured - int(documented)) <= DIFFERENCE_MAX


@pytest.fixture
def called() -> Iterator[CalledFiles]:
    """Note calls of this thread, and of all threads that start during the test."""
    files, before = CalledFiles(), sys.getprofile()
    threading.setprofile(files.note)
    sys.setprofile(files.note)
    try:
        yield files
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


@pytest.fixture
async def server(called: CalledFiles, tmp_path: Path) -> AsyncIterator[Server]:
    """Run a server with a disk, whose topic `t` has more messages than any test reads."""
    async with Server(data=tmp_path, native="127.0.0.1:0") as running:
        async with kledger.connect(f"kledger://{running.native_address}") as client:
            producer = await client.create_producer("t")
            for _ in range(3 * REPEATS):
                await producer.send(b"x")
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[WireClient]:
    """Connect a client; its frames are made before they are sent, so it calls no file of ours."""
    host, port = server.kafka_address.rsplit(":", 1)
    async with WireClient(host, int(port)) as connected:
        yield connected


def sending(
    client: WireClient, request: ApiMessage, version: int
) -> Callable[[], Awaitable[object]]:
    """Return what sends a request and waits for its response."""
    frames = iter([client.frame(request, version) for _ in range(REPEATS)])

    async def send() -> object:
        client.send_frame(next(frames))
        return await client.receive_frame()

    return send


async def test_produce_runs_through_the_documented_number(
    called: CalledFiles, client: WireClient
) -> None:
    check("Produce", await called.fewest(sending(client, produce({0: batch(b"x")}), 9)))


async def test_fetch_runs_through_the_documented_number(
    called: CalledFiles, client: WireClient
) -> None:
    check("Fetch", await called.fewest(sending(client, fetch({0: 0}), 12)))


async def test_join_group_runs_through_the_documented_number(
    called: CalledFiles, client: WireClient
) -> None:
    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    member_id = (await client.ask(join(""), 5)).member_id
    generation_id = (await client.ask(join(member_id), 5)).generation_id
    assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
    await client.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=None,
            assignments=[assignment],
        ),
        3,
    )
    check("JoinGroup", await called.fewest(sending(client, join(member_id), 5)))


async def test_receive_and_acknowledge_run_through_the_documented_number(
    called: CalledFiles, server: Server
) -> None:
    async with kledger.connect(f"kledger://{server.native_address}") as client:
        consumer = await client.subscribe(
            "t", "s", initial_position="earliest", receiver_queue_size=1
        )

        async def receive() -> None:
            await consumer.acknowledge(await consumer.receive())

        await receive()
        check("native receive and acknowledge", await called.fewest(receive))

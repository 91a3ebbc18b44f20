"""A kept connection to a peer that answers, is silent, hangs up or errs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kledger.gateway.peers.peer_link import PeerLink, PeerUnavailable
from kledger.gateway.peers.peer_socket import bind_peer_socket, connect_to
from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.header import decode_request_header, response_prefix
from kledger.gateway.wire.messages.k27_write_txn_markers import (
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.gateway.running import until

GUARD_S = 60
TIMEOUT_MS = 10_000
KEY, VERSION = 27, 1
REQUEST = WriteTxnMarkersRequest(markers=[])
Link = PeerLink[WriteTxnMarkersResponse]


def answered(correlation_id: int, producer_id: int = 7) -> bytes:
    """Return the response to a request, behind its size."""
    result = WritableTxnMarkerResult(producer_id=producer_id, topics=[])
    body = encode(WriteTxnMarkersResponse(markers=[result]), VERSION)
    return response_prefix(correlation_id, KEY, VERSION, len(body)) + body


@dataclass
class PeerOfTest:
    """A peer at the other end of a socket.

    Attributes:
        answer: returns what is sent for the correlation id of a request.
        connections: all that were made.
        serving: how many of them have not ended.
        asked: how many requests have come.
    """

    folder: Path
    answer: Callable[[int], bytes] = answered
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    serving: int = 0
    asked: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self.serving += 1
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header = decode_request_header(frame)
                assert (KEY, VERSION) == (header.api_key, header.api_version)
                self.asked += 1
                writer.write(self.answer(header.correlation_id))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.serving -= 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator["PeerOfTest"]:
        self.folder.mkdir(exist_ok=True)
        server = await asyncio.start_unix_server(self.serve, sock=bind_peer_socket(self.folder))
        try:
            yield self
        finally:
            server.close()
            for each in self.connections:
                each.close()
            async with asyncio.timeout(GUARD_S):
                await until(lambda: self.serving == 0)

    async def was_asked(self, count: int) -> None:
        async with asyncio.timeout(GUARD_S):
            await until(lambda: self.asked == count)


@pytest.fixture
def peer(tmp_path: Path) -> PeerOfTest:
    return PeerOfTest(tmp_path / "worker-1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def link_to(peer: PeerOfTest, clock: ManualClock, timeout_ms: int | None = TIMEOUT_MS) -> Link:
    timers = Timers(clock, Supervisor())
    connect = connect_to(peer.folder)
    return PeerLink(connect, timers, WriteTxnMarkersResponse, VERSION, timeout_ms=timeout_ms)


async def asked(link: Link) -> int:
    """Ask, and return the producer id of the answer."""
    async with asyncio.timeout(GUARD_S):
        response = await link.ask(REQUEST)
    (result,) = response.markers
    return result.producer_id


async def unanswered(
    peer: PeerOfTest, clock: ManualClock, timeout_ms: int | None = TIMEOUT_MS
) -> tuple[Link, asyncio.Task[int]]:
    """Ask a running peer that does not answer; return when it has been asked."""
    peer.answer = lambda _: b""
    link = link_to(peer, clock, timeout_ms=timeout_ms)
    waiting = asyncio.create_task(asked(link))
    await peer.was_asked(1)
    return link, waiting


async def test_requests_share_one_connection(peer: PeerOfTest, clock: ManualClock) -> None:
    async with peer.running():
        link = link_to(peer, clock)
        assert [7, 7] == [await asked(link), await asked(link)]
        assert (2, 1) == (peer.asked, len(peer.connections))
        link.abort()


async def test_a_peer_without_a_socket_is_away_until_it_has_one(
    peer: PeerOfTest, clock: ManualClock
) -> None:
    link = link_to(peer, clock)
    with pytest.raises(PeerUnavailable, match="No such file"):
        await link.ask(REQUEST)
    async with peer.running():
        assert 7 == await asked(link)
    with pytest.raises(PeerUnavailable):
        await link.ask(REQUEST)
    async with peer.running():
        assert 7 == await asked(link)


async def test_a_peer_that_hangs_up_is_away_and_connected_to_again(
    peer: PeerOfTest, clock: ManualClock
) -> None:
    async with peer.running():
        link, waiting = await unanswered(peer, clock)
        peer.connections[0].close()
        with pytest.raises(PeerUnavailable, match="has ended"):
            await waiting
        peer.answer = answered
        assert 7 == await asked(link)
        assert 2 == len(peer.connections)


async def test_a_silent_peer_is_away_when_its_time_is_over(
    peer: PeerOfTest, clock: ManualClock
) -> None:
    async with peer.running():
        _, waiting = await unanswered(peer, clock)
        clock.advance(TIMEOUT_MS - 1)
        assert not waiting.done()
        clock.advance(1)
        with pytest.raises(PeerUnavailable):
            await waiting


async def test_an_answer_in_time_leaves_no_deadline_behind(
    peer: PeerOfTest, clock: ManualClock
) -> None:
    async with peer.running():
        link = link_to(peer, clock)
        assert 7 == await asked(link)
        clock.advance(TIMEOUT_MS)
        await asyncio.sleep(0)
        assert 7 == await asked(link)
        assert 1 == len(peer.connections)


async def test_a_marker_is_waited_for_as_long_as_the_connection_lasts(
    peer: PeerOfTest, clock: ManualClock
) -> None:
    """Sent again it could end a later transaction of the same epoch."""
    async with peer.running():
        _, waiting = await unanswered(peer, clock, timeout_ms=None)
        clock.advance(3_600_000)
        await asyncio.sleep(0)
        peer.connections[0].write(answered(1))
        assert 7 == await waiting
        assert 1 == peer.asked


async def test_abort_fails_the_request_under_way(peer: PeerOfTest, clock: ManualClock) -> None:
    async with peer.running():
        link, waiting = await unanswered(peer, clock)
        link.abort()
        with pytest.raises(PeerUnavailable):
            await waiting


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda number: answered(number + 1), id="to another request"),
        pytest.param(lambda _: b"\0\0\0\0", id="without content"),
        pytest.param(lambda _: b"\x7f\xff\xff\xff", id="larger than allowed"),
        pytest.param(lambda _: b"\0\0\0\2ab", id="shorter than a header"),
        pytest.param(lambda n: b"\0\0\0\4" + n.to_bytes(4, "big"), id="ends behind the number"),
        pytest.param(lambda n: answered(n)[:3] + b"\x08" + answered(n)[4:12], id="cut off"),
        pytest.param(lambda n: b"\0\0\0\6" + n.to_bytes(4, "big") + b"\0\x7f", id="no message"),
    ],
)
async def test_a_peer_that_errs_is_away(
    peer: PeerOfTest, clock: ManualClock, wrong: Callable[[int], bytes]
) -> None:
    async with peer.running():
        peer.answer = wrong
        link = link_to(peer, clock)
        with pytest.raises(PeerUnavailable):
            await asked(link)
        peer.answer = answered
        assert 7 == await asked(link)
        assert 2 == len(peer.connections)


async def test_an_answer_that_nobody_waits_for_ends_the_connection(
    peer: PeerOfTest, clock: ManualClock
) -> None:
    """It could be taken for that of the next request."""
    async with peer.running():
        peer.answer = lambda number: answered(number) + answered(number + 1, producer_id=8)
        link = link_to(peer, clock)
        assert 7 == await asked(link)
        peer.answer = answered
        async with asyncio.timeout(GUARD_S):
            await until(peer.connections[0].is_closing)
        assert 7 == await asked(link)
        assert 2 == len(peer.connections)


async def test_a_request_that_is_cancelled_leaves_its_answer_to_nobody(
    peer: PeerOfTest, clock: ManualClock
) -> None:
    async with peer.running():
        link, waiting = await unanswered(peer, clock)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        peer.connections[0].write(answered(1, producer_id=8))
        peer.answer = answered
        async with asyncio.timeout(GUARD_S):
            await until(peer.connections[0].is_closing)
        assert 7 == await asked(link)

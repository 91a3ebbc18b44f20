"""Network: connections between brokers that are slow, and cut at any time.

Rule: what is on its way when a connection is cut is lost, a question or an answer; what the other
broker has begun goes on. What a broker has sent before it ended may arrive all the same, even
behind what its next life sends. Nothing is changed, doubled or overtaken on one connection.
Must not know: what is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import cast

from kledger.gateway.peers.peer_link import Connect, PeerConnection
from kledger.gateway.wire.framing import FrameSplitter
from tests.simulation.clock import SimulatedClock

DELAYS_MS = (0, 0, 1, 20, 400, 1_500, 12_000)
"""Longer than callers wait for markers, and for other questions."""
Serve = Callable[[memoryview], Awaitable[bytes]]
"""Returns the response to a request, behind its size."""


class Network:
    """All connections of the brokers."""

    def __init__(
        self, random: Random, clock: SimulatedClock, find: Callable[[int], Serve | None]
    ) -> None:
        """Args: find: returns what serves the peers of a broker; None: it does not run."""
        self.clock = clock
        self.cuts = 0.0
        """Probability that a connection is cut before a question or an answer arrives."""
        self.lost = 0
        self._random = random
        self._find = find
        self._links: list[SimulatedLink] = []
        self._orphans: list[SimulatedLink] = []

    def connect_to(self, source: int, target: int) -> Connect:
        """Return what connects a broker to another one."""

        clock = self.clock

        async def connect(connection: PeerConnection) -> object:
            await clock.sleep(self.delay_ms())
            serve = self._find(target)
            if serve is None:
                raise ConnectionRefusedError(f"broker {target} does not run")
            link = SimulatedLink(self, connection, serve, source, target)
            self._links.append(link)
            connection.connection_made(cast(asyncio.BaseTransport, link))
            return link

        return connect

    def cut_off(self, broker_id: int) -> None:
        """Cut all connections of a broker that ends."""
        for each in [each for each in self._links if broker_id in {each.source, each.target}]:
            each.cut()
            each.is_orphan = each.source == broker_id
            if each.is_orphan:
                self._orphans.append(each)
        for each in [each for each in self._orphans if each.target == broker_id]:
            self._orphans.remove(each)
            each.is_orphan = False

    def delay_ms(self) -> int:
        return self._random.choice(DELAYS_MS) if self.cuts else 0

    def is_lost(self) -> bool:
        is_lost = self._random.random() < self.cuts
        self.lost += is_lost
        return is_lost

    def forget(self, link: "SimulatedLink") -> None:
        if link in self._links:
            self._links.remove(link)


class SimulatedLink:
    """One connection; the transport of the broker that has made it."""

    def __init__(
        self,
        network: Network,
        connection: PeerConnection,
        serve: Serve,
        source: int,
        target: int,
    ) -> None:
        self.source, self.target = source, target
        self.is_orphan = False
        """Whether what is under way arrives, though its sender has ended."""
        self._network = network
        self._connection = connection
        self._serve = serve
        self._splitter = FrameSplitter()
        self._is_cut = False
        self._serving: set[asyncio.Task[None]] = set()

    def write(self, data: bytes) -> None:
        if self._network.is_lost():
            asyncio.get_running_loop().call_soon(self.cut)
        else:
            delay_s = self._network.delay_ms() / 1_000
            asyncio.get_running_loop().call_later(delay_s, self._arrive, data)

    def abort(self) -> None:
        """End the connection, from the side that has made it."""
        self._is_cut = True
        self._network.forget(self)

    def cut(self) -> None:
        if not self._is_cut:
            self.abort()
            self._connection.connection_lost(ConnectionResetError())

    def _arrive(self, data: bytes) -> None:
        if not self._is_cut or self.is_orphan:
            for frame, _ in self._splitter.feed(data):
                task = asyncio.get_running_loop().create_task(self._answer(frame))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)

    async def _answer(self, frame: memoryview) -> None:
        response = await self._serve(frame)
        if self._network.is_lost():
            self.cut()
            return
        await self._network.clock.sleep(self._network.delay_ms())
        if not self._is_cut:
            self._connection.data_received(response)

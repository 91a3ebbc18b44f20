"""World: the processes of one run, and what its clients may do.

Rule: an action draws everything from `random` and starts operations with `start`; an operation may
fail as its method says, and with nothing else.
Must not know: which actions there are.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import kledger
from kledger.native.errors import AlreadyClosed, IllegalState, KledgerError, Timeout, Unavailable
from kledger.runtime.entropy import SeededEntropy
from tests.simulation.faults import Faults
from tests.simulation.invariants import InvariantBroken
from tests.simulation.loop import SimulatedLoop
from tests.simulation.named_topics.member import Member, WatchedState
from tests.simulation.named_topics.model import TopicModel
from tests.simulation.named_topics.network import Link, Network
from tests.simulation.named_topics.server import Machine, ServerProcess

TOPIC = "orders"
CHANNELS_MAX = 5
MEMBERS_MAX = 5
GROUPS: tuple[str | None, ...] = ("a", "a", "a", "b", None)
"""Of a member that starts; None: anonymous."""
PUBLISHERS = 2
TIMEOUT_S = 900.0
"""Virtual time within which all operations must end when nothing fails."""
EXPECTED = (Unavailable, IllegalState, AlreadyClosed, Timeout)
"""How an operation may fail while clients, links and servers end."""
OPERATION_TIMEOUT_MS = 5_000


@dataclass(slots=True, kw_only=True)
class TopicSettings:
    """What a seed draws for the topic; channels may be added."""

    channel_count: int
    is_retaining: bool
    timeout_ms: int
    page_bytes: int
    allows_unowned: bool
    has_filter: bool
    expiry_ms: int | None


class PublisherProcess:
    """A client process with one publisher."""

    def __init__(self, name: str, link: Link, client: kledger.Client) -> None:
        self.name = name
        self.link = link
        self.client = client
        self.publishers: dict[int, tuple[str, kledger.Publisher]] = {}
        """By the channel that they publish to, with their names."""
        self.sent = 0


@dataclass(slots=True, eq=False)
class World:
    """One run."""

    random: Random
    loop: SimulatedLoop
    machine: Machine
    network: Network
    model: TopicModel
    settings: TopicSettings
    trace: Callable[[str], None]
    cancels: float
    members: dict[str, Member] = field(default_factory=dict)
    publishers: list[PublisherProcess] = field(default_factory=list)
    tasks: dict["asyncio.Task[None]", str] = field(default_factory=dict)
    tasks_of: dict[object, dict["asyncio.Task[None]", None]] = field(default_factory=dict)
    is_changing_server: bool = False
    is_resting: bool = True
    """Nothing fails."""
    starts: int = 0
    """How often a process was started."""
    step: int = -1
    is_over: bool = False

    @property
    def faults(self) -> Faults:
        return self.machine.faults

    @property
    def server(self) -> ServerProcess | None:
        return self.network.server

    # Operations

    def start(
        self,
        what: str,
        work: Coroutine[Any, Any, None],
        *,
        of: object = None,
        may_cancel: bool = True,
    ) -> "asyncio.Task[None]":
        """Start what may be cancelled at any time, and ends with its process."""
        self.trace(what)
        task = self.loop.create_task(self._tolerant(what, work))
        self.tasks[task] = what
        self.tasks_of.setdefault(of, {})[task] = None
        task.add_done_callback(partial(self._ended, of, work))
        if may_cancel and self.random.random() < self.cancels:
            delay_s = self.random.choice((0, 1, 50, 2_000)) / 1000
            self.loop.call_later(delay_s, task.cancel)
        return task

    async def _tolerant(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EXPECTED as error:
            if not self.is_over:
                self.trace(f"{what}: {type(error).__name__}: {error}")

    def _ended(
        self, of: object, work: Coroutine[Any, Any, None], task: "asyncio.Task[None]"
    ) -> None:
        work.close()  # a task that was cancelled before its first step has never awaited it
        what = self.tasks.pop(task)
        self.tasks_of[of].pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and not self.is_over:
            self.trace(f"{what}: {error!r}")
            self.machine.schedule.interrupt(error)

    def cancel_all(self, of: object) -> None:
        for task in list(self.tasks_of.get(of, ())):
            task.cancel()

    async def rest(self) -> None:
        """Wait for the end of all operations."""
        if self.tasks:
            _, waiting = await asyncio.wait(list(self.tasks), timeout=TIMEOUT_S)
            if waiting:
                names = sorted(self.tasks[task] for task in waiting)
                raise InvariantBroken(f"never ended: {', '.join(names)}")

    # The server

    async def start_server(self) -> None:
        """Start the server on what is stored; nothing fails meanwhile."""
        self.faults.is_on = False
        number, self.starts = self.starts, self.starts + 1
        self.network.server = await ServerProcess.start(
            self.machine, number, lambda error: self._server_stopped(number, error)
        )
        self.faults.is_on = not self.is_resting

    def _server_stopped(self, number: int, error: str) -> None:
        server = self.server
        if not self.is_over and server is not None and server.number == number:
            self.start(f"the server has stopped: {error}", self.kill_server(), may_cancel=False)

    async def kill_server(self, survivors: int | None = None) -> None:
        """Kill the server, start another. `survivors`: of a power cut: unsynced groups that are
        written; None: what was written is."""
        server = self.server
        if server is None or self.is_changing_server:
            return
        self.is_changing_server = True
        self.network.lose_server()
        await server.kill()
        if survivors is not None:
            lost = self.machine.disk.cut_power(survivors)
            self.trace(f"{lost} groups are lost")
        await self._start_again()

    async def restart_server(self) -> None:
        """Stop the server as its operator does, start another."""
        server = self.server
        if server is None or self.is_changing_server:
            return
        self.is_changing_server = True
        self.faults.is_on = False
        self.network.lose_server()
        with suppress(kledger.ledger.LedgerError):
            await server.close()
        await self._start_again()

    async def _start_again(self) -> None:
        await self.machine.clock.sleep(self.random.choice((0, 100, 3_000)))
        await self.start_server()
        self.is_changing_server = False

    # Clients

    async def open_client(self) -> tuple[Link, kledger.Client]:
        """Start a client process."""
        link = Link(self.network)
        self.starts += 1
        client = kledger.Client(
            link,  # type: ignore[arg-type]
            clock=self.machine.clock,
            entropy=SeededEntropy(self.starts),
            operation_timeout_ms=OPERATION_TIMEOUT_MS,
        )
        await client.__aenter__()
        return link, client

    async def join(self, name: str, group: str | None) -> None:
        """Start a client process with a subscriber."""
        link, client = await self.open_client()
        member = self.members[name] = Member(name, self.model, link, client, group)
        try:
            topic = await client.named_topic(TOPIC)
            completes = self.random.random() < 0.3
            WatchedState.next_member = member
            member.subscriber = await topic.create_subscriber(
                group=group, complete_on_empty=completes, deserializer=member.stamp
            )
            self.trace(f"{member} is subscriber {member.subscriber.id}")
        except BaseException:
            await self.kill(member)
            raise

    async def leave(self, member: Member) -> None:
        """Close a subscriber and its client."""
        if member.is_over:
            return
        member.is_over = True
        if member.subscriber is not None:
            await member.subscriber.close()
        await member.client.__aexit__(None, None, None)
        self._forget(member)

    async def kill(self, member: Member) -> None:
        """End a client process in the middle of whatever it does."""
        member.is_over = True
        member.link.end()
        self.cancel_all(member)
        self._forget(member)
        services = member.client._services
        if services is not None:
            await services.supervisor.close()

    def _forget(self, member: Member) -> None:
        if self.members.get(member.name) is member:
            del self.members[member.name]

    async def publisher(
        self, process: PublisherProcess, channel: int
    ) -> tuple[str, kledger.Publisher]:
        """Return the publisher of a channel; one that was stopped is replaced."""
        known = process.publishers.get(channel)
        if known is None or not known[1].is_active:
            topic = await process.client.named_topic(TOPIC)
            publisher = await topic.create_publisher(order_by=kledger.OrderBy.id(channel))
            self.starts += 1
            known = process.publishers[channel] = f"{process.name}.{self.starts}", publisher
        return known

    async def close(self) -> None:
        """End everything, in order."""
        for member in list(self.members.values()):
            await self.leave(member)
        for process in self.publishers:
            with suppress(KledgerError):
                await process.client.__aexit__(None, None, None)
        if self.server is not None:
            server = self.server
            self.network.lose_server()
            await server.close()

"""Brokers of one cluster as processes, behind one address.

Rule: their ports stay reserved while they do not listen, so that no other process, and no
connection of a client, gets one. Every wait has a limit, and no process survives the context.
Must not know: what is stored.
"""

import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from cluster_demo.balancer import Balancer
from compat_tests.servers.ports import ReservedPort
from kledger.process import ServerProcess, arguments_for

BROKERS: Final = 3
HOST: Final = "127.0.0.1"
WAIT_S: Final = 120
"""For the start of a broker, and for a takeover, which takes 6 s and what a start takes."""


class NoOwner(TimeoutError):
    """No broker became the owner of the cluster within `WAIT_S`."""


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """Which broker was the owner, which one is now, and the seconds in between."""

    before: int
    after: int
    seconds: float

    def __str__(self) -> str:
        return f"broker {self.after} owns the cluster {self.seconds:.1f} s later"


class ClusterBrokers:
    """Brokers 1, 2, …, of which one serves clients; a context manager.

    Attributes:
        bootstrap: HOST:PORT for Kafka clients, whichever broker is the owner.
        native: HOST:PORT for native clients.
        owner: the `node.id` of the owner.
    """

    def __init__(self, url: str, store: str, settings: Mapping[str, object]) -> None:
        """Make them.

        Args:
            url: the database of a cluster.
            store: the object store of it.
            settings: those of every broker.
        """
        self._command = ["--cluster", url, "--store", store, *arguments_for(dict(settings))]
        self._brokers: dict[int, ServerProcess] = {}
        self._ready: dict[int, Future[ServerProcess]] = {}
        self._stack = ExitStack()
        self.bootstrap = self.native = ""
        self.owner = 0

    def __enter__(self) -> Self:
        """Start them, the owner first; return when the others wait.

        Raises:
            ServerNotReady: a broker ended instead.
            NoOwner: none became the owner in time.
        """
        with ExitStack() as stack:
            kafka = [stack.enter_context(ReservedPort(HOST)).number for _ in range(BROKERS)]
            native = [stack.enter_context(ReservedPort(HOST)).number for _ in range(BROKERS)]
            self.bootstrap = stack.enter_context(Balancer(HOST, kafka)).address
            self.native = stack.enter_context(Balancer(HOST, native)).address
            # Its threads wait for processes, so these end before it.
            self._pool = stack.enter_context(ThreadPoolExecutor(BROKERS))
            for node_id in range(1, BROKERS + 1):
                own = {
                    "node.id": node_id,
                    "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
                }
                broker = ServerProcess(
                    *self._command,
                    *arguments_for(own),
                    kafka=f"{HOST}:{kafka[node_id - 1]}",
                    native=f"{HOST}:{native[node_id - 1]}",
                )
                stack.callback(broker.stop)
                self._begin(node_id, broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all."""
        self._stack.close()

    def kill_owner(self) -> OwnerChange:
        """Kill the owner, as a crash of its machine would; return when another broker serves.

        Raises:
            NoOwner: none does in time.
        """
        begun = time.monotonic()
        self._brokers[self.owner].kill()
        return self._wait_for_owner(begun)

    def restart(self) -> None:
        """Stop the owner in order; return when another broker serves, with nothing in memory.

        Raises:
            NoOwner: none does in time.
        """
        begun = time.monotonic()
        self._brokers[self.owner].stop()
        self._wait_for_owner(begun)

    def _begin(self, node_id: int, broker: ServerProcess) -> None:
        """Start a broker and wait until it is the owner, if there is none, or waits."""
        broker.begin()
        self._brokers[node_id] = broker
        if self.owner:
            self._pool.submit(broker.wait_until_standby).result(WAIT_S)
        self._ready[node_id] = self._pool.submit(broker.wait_until_ready)
        if not self.owner:
            self._wait_for_owner(time.monotonic())

    def _wait_for_owner(self, begun: float) -> OwnerChange:
        """Wait for the ready line of a broker that was waiting."""
        done, _ = wait(self._ready.values(), WAIT_S, return_when=FIRST_COMPLETED)
        if not done:
            raise NoOwner(f"none of the brokers {sorted(self._ready)} is ready within {WAIT_S} s")
        seconds = time.monotonic() - begun
        after = next(node_id for node_id, ready in self._ready.items() if ready in done)
        self._ready.pop(after).result()
        change = OwnerChange(self.owner, after, seconds)
        self.owner = after
        return change

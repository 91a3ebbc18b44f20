"""A cluster of nodes as processes: servers that divide its nodes, behind one interface.

Rule: a start returns when every server has its share of the nodes, and serves them. What is killed
is started again under the same addresses and the same `node.id`.
"""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from itertools import chain
from pathlib import Path

from compat_tests.deadlines import PROGRAM_S
from compat_tests.servers.cluster import ClusterStores
from compat_tests.servers.kledger import KledgerServer
from compat_tests.servers.process import ServerFailed

SERVERS = 3
POLL_S = 0.05
_NODES = re.compile(r"^nodes: (.+)$", re.MULTILINE)


class NodeServerProcess(KledgerServer):
    """One server of a cluster of nodes."""

    def __init__(
        self, folder: Path, server_id: int, stores: ClusterStores, *, nodes: int, is_native: bool
    ) -> None:
        """Take the stores of a cluster that has so many nodes."""
        super().__init__(folder, is_native=is_native)
        self._server_id = server_id
        self._nodes = nodes
        self._stores = stores
        self.admin_port = 0
        self.is_paused = False

    @property
    def ports_behind(self) -> int:
        """One for each node."""
        return self._nodes

    def prepare(self) -> None:
        """Reserve the ports at the first start."""
        super().prepare()
        if not self.admin_port:
            self.admin_port = self.reserve_port(self.ports_behind)

    def storage(self) -> list[str]:
        """Name the cluster, and the admin listener, whose page says which nodes it serves."""
        own = ["--admin", f"{self.host}:{self.admin_port}"]
        return [*self._stores.arguments(), *own, "--set", f"node.id={self._server_id}"]

    def pause(self) -> None:
        """Stop the clock of the process, as a machine that hangs would."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let a paused process go on."""
        self.is_paused = False
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """End it in order, also when it was paused."""
        if self.is_paused and self.is_running():
            self.resume()
        return super().stop()

    def served_nodes(self) -> list[int]:
        """Return the nodes that it serves now; of a server that does not answer, none."""
        if self.is_paused:
            return []
        with suppress(OSError, HTTPException):
            url = f"http://{self.host}:{self.admin_port}/health"
            with urllib.request.urlopen(url, timeout=PROGRAM_S) as response:
                found = _NODES.search(response.read().decode())
            return [int(each) for each in found[1].split(",")] if found else []
        return []


class NodesServer(KledgerServer):
    """Three servers of a cluster that only they know; `host` and `port` are those of the first."""

    def __init__(
        self,
        folder: Path,
        stores: ClusterStores,
        *,
        nodes: int,
        settings: Mapping[str, str] | None = None,
        is_native: bool = False,
    ) -> None:
        """Take empty stores, and how many nodes the cluster has."""
        super().__init__(folder, settings=settings, is_native=is_native)
        self.stores = stores
        self._nodes = nodes
        self._is_made = False
        self.servers = [
            NodeServerProcess(
                folder / f"server-{each}", each, stores, nodes=nodes, is_native=is_native
            )
            for each in range(1, SERVERS + 1)
        ]
        for server in self.servers:
            server.secrets = self.secrets

    @property
    def bootstrap(self) -> str:
        """The addresses of all servers."""
        return ",".join(each.bootstrap for each in self.servers)

    @property
    def parts(self) -> int:
        """Its servers."""
        return len(self.servers)

    @property
    def broker_addresses(self) -> list[str]:
        """Those of the nodes, wherever they are now."""
        return [f"{server.host}:{server.port + node}" for node, server in self._owners()]

    @property
    def admin_addresses(self) -> list[str]:
        """Those of the nodes."""
        return [f"{server.host}:{server.admin_port + node}" for node, server in self._owners()]

    @property
    def pid(self) -> int:
        """That of the first server."""
        return self.servers[0].pid

    def command(self) -> list[str]:
        """Give the command line of the first server."""
        return self.servers[0].command()

    def prepare(self) -> None:
        """Reserve the ports of all servers, and make the cluster, at the first start."""
        for server in self.servers:
            server.settings |= self.settings
            server.prepare()
        self.host, self.port = self.servers[0].host, self.servers[0].port
        if self.native_address:
            self.native_address = ",".join(each.native_address for each in self.servers)
        if not self._is_made:
            self.stores.make_cluster(nodes=self._nodes)
            self._is_made = True

    def listen_as(self, *names: str) -> dict[str, str]:
        """Let each server listen under these names; return the addresses of all servers by name."""
        found = [each.listen_as(*names) for each in self.servers]
        return {name: ",".join(each[name] for each in found) for name in names}

    def begin(self) -> None:
        """Start all servers at once."""
        for server in self.servers:
            server.begin()

    def wait_until_answering(self, deadline: float) -> None:
        """Wait until every server serves its share.

        Raises:
            ServerFailed: they do not in time, or one has ended.
        """
        for server in self.servers:
            server.wait_until_answering(deadline)
        self.wait_divided()

    def stop(self) -> int:
        """End the servers in order, one after the other; return the highest exit status."""
        return max(each.stop() for each in self.servers)

    def kill(self) -> int:
        """End all servers as a crash would, each before it can take anything over."""
        return max(each.kill() for each in self.servers)

    def kill_part(self, index: int) -> float:
        """End one server as a crash would, and start it again when others serve its nodes.

        Returns:
            Seconds from its end until others served its nodes.

        Raises:
            ServerFailed: they do not in time, or one has ended.
        """
        found = self.end_part(index)
        self.start_part(index)
        return found

    def end_part(self, index: int) -> float:
        """Do the first half of `kill_part`."""
        begun = time.monotonic()
        self.servers[index].kill()
        self.wait_served()
        return time.monotonic() - begun

    def start_part(self, index: int) -> None:
        """Start a server that has ended, and wait until it has its share again."""
        self.servers[index].start()
        self.wait_divided()

    def restart_in_turn(self) -> None:
        """Stop each server in order and start it again, while the others serve its nodes."""
        for index, server in enumerate(self.servers):
            if status := server.stop():
                raise ServerFailed(f"server {index + 1}: status {status}\n{server.log_tail()}")
            self.start_part(index)

    def is_running(self) -> bool:
        """True while all servers live."""
        return all(each.is_running() for each in self.servers)

    def require_running(self) -> None:
        """Check that all servers live. Raises ServerFailed: one does not."""
        for each in self.servers:
            each.require_running()

    def cpu_seconds(self) -> float:
        """Give the CPU time of all servers that run."""
        return sum(each.cpu_seconds() for each in self.servers)

    def rss_bytes(self) -> int:
        """Give the resident memory of all servers."""
        return sum(each.rss_bytes() for each in self.servers)

    def log_tail(self) -> str:
        """Give the ends of the logs, for messages."""
        return "\n".join(each.log_tail() for each in self.servers)

    def __exit__(self, *exception: object) -> None:
        """Stop all servers, and search their logs for secrets."""
        for server in self.servers:
            server.__exit__(*exception)

    def wait_served(self) -> None:
        """Wait until each node is served by a server. Raises ServerFailed: not in time."""
        deadline = time.monotonic() + self.start_timeout_s
        nodes = [*range(1, self._nodes + 1)]
        while sorted(chain.from_iterable(self._served())) != nodes:
            self._wait(deadline)

    def wait_divided(self) -> None:
        """Wait until each node is served, and no server has two nodes more than another.

        Raises:
            ServerFailed: not in time, or a server has ended.
        """
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            self.require_running()
            counts = [*map(len, self._served())]
            if sum(counts) == self._nodes and max(counts) - min(counts) <= 1:
                return
            self._wait(deadline)

    def _owners(self) -> list[tuple[int, NodeServerProcess]]:
        """Return the nodes that are served, with their servers."""
        found = {node: server for server in self.servers for node in server.served_nodes()}
        return sorted(found.items())

    def _served(self) -> list[list[int]]:
        return [each.served_nodes() for each in self.servers]

    def _wait(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise ServerFailed(f"nodes by server: {self._served()}\n{self.log_tail()}")
        time.sleep(POLL_S)

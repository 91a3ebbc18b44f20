"""The demonstration with a cluster: a server is killed while Spark reads, and nothing is lost.

Rule: the steps, the data and the comparison with pandas are those of `pipelines.demo`; three
servers divide six nodes, so each of them serves a part of the flights. One is killed when Spark has
finished some micro-batches, whatever time that takes, and is started again behind the stream.
Must not know: how servers work inside.

Run it with ``make demo-cluster``.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from cluster_demo.stores import running_stores
from compat_tests.servers import ClusterStores, NodesServer
from pipelines import delays
from pipelines.demo import Demonstration, demonstrate
from pipelines.demo_server import CHECK_INTERVAL_MS

NODES: Final = 6
KILLED: Final = 1
"""The index of the server that is killed."""
KILLED_AFTER: Final = 2
"""Micro-batches."""
BATCHES_MIN: Final = 6
"""Into how many micro-batches the stream is divided, at least."""


class DemoCluster:
    """Servers of one cluster; a `RestartableServer`, which is restarted server by server.

    Attributes:
        bootstrap: the addresses of all servers for Kafka clients, HOST:PORT each.
        native: those for native clients.
    """

    def __init__(self, servers: NodesServer) -> None:
        """Take servers that run."""
        self.servers = servers
        self.bootstrap = servers.bootstrap
        self.native = servers.native_address

    def restart(self) -> None:
        """Stop and start one server after the other; then no node has anything in memory."""
        self.servers.restart_in_turn()


class ClusterDemonstration(Demonstration):
    """The demonstration over a cluster."""

    def __init__(
        self,
        cluster: DemoCluster,
        folder: Path,
        console: Console,
        *,
        flights_max: int | None = None,
    ) -> None:
        """Make one for a cluster that runs."""
        super().__init__(
            cluster.bootstrap, folder, console, server=cluster, flights_max=flights_max
        )
        self._servers = cluster.servers

    def run_streams(self, spark: SparkSession) -> None:
        """Stream all flights, and kill a server in between."""
        self.show_status()
        self.step("stream: a server is killed", lambda: self.stream_over_kill(spark))
        self.show_status()
        self.step("start the killed server again", self.bring_back)
        self.show_status()

    def stream_over_kill(self, spark: SparkSession) -> tuple[str, None]:
        """Kill a server after some micro-batches; the stream must go on to its end."""
        most = self.flights_max
        query, killing = delays.start_stream(
            spark,
            self.bootstrap,
            self.outputs,
            stop_after=KILLED_AFTER,
            batch_offsets=delays.OFFSETS_PER_BATCH if most is None else most // BATCHES_MIN,
        )
        if not killing.wait(delays.STREAM_TIMEOUT_S):
            raise TimeoutError(f"no {KILLED_AFTER} micro-batches within the time of a stream")
        nodes = self._servers.servers[KILLED].served_nodes()
        seconds = self._servers.end_part(KILLED)
        change = f"others serve its nodes {_listed(nodes)} {seconds:.1f} s later"
        self.console.print(
            f"server {KILLED + 1} was killed after {KILLED_AFTER} micro-batches; {change}"
        )
        run = delays.finish_stream(query)
        delays.publish_windows(spark, self.bootstrap, self.outputs)
        return f"{run.records:,} records in {run.batches} micro-batches; {change}", None

    def bring_back(self) -> tuple[str, None]:
        """Start the server again, which gets its share of the nodes."""
        self._servers.start_part(KILLED)
        nodes = self._servers.servers[KILLED].served_nodes()
        return f"server {KILLED + 1} serves the nodes {_listed(nodes)}", None

    def show_status(self) -> None:
        """Print what `kledger cluster status` says."""
        self.console.print("[bold]kledger cluster status[/]")
        status = self._servers.stores.status()
        self.console.print(status, markup=False, highlight=False, soft_wrap=True)


def _listed(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))


def running_servers(stack: ExitStack, stores: ClusterStores, folder: Path) -> NodesServer:
    """Make a cluster in empty stores, and start servers, which the stack ends.

    Args:
        stack: ends them.
        stores: of the cluster.
        folder: for their logs.
    """
    settings = {"log.retention.check.interval.ms": str(CHECK_INTERVAL_MS)}
    servers = NodesServer(folder, stores, nodes=NODES, settings=settings, is_native=True)
    return stack.enter_context(servers)


def main() -> int:
    """Run the demonstration; exit code 1 when anything differs, 130 when interrupted."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="results' folder")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N of the year")
    arguments = parser.parse_args()
    if arguments.flights is not None and arguments.flights < BATCHES_MIN:
        parser.error(f"--flights: expected at least {BATCHES_MIN}, got {arguments.flights}")

    def prepare(stack: ExitStack, folder: Path, console: Console) -> Demonstration:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kledger-demo-")))
        stores = stack.enter_context(running_stores(temporary / "objects"))
        servers = running_servers(stack, stores, temporary / "servers")
        console.print(
            f"{servers.parts} servers without disks divide {NODES} nodes, and serve "
            f"{servers.bootstrap}; their data is in PostgreSQL and in {stores.store}"
        )
        cluster = DemoCluster(servers)
        return ClusterDemonstration(cluster, folder, console, flights_max=arguments.flights)

    return demonstrate(arguments.out, prepare)


if __name__ == "__main__":
    sys.exit(main())

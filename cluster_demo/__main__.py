"""The demonstration with a cluster: its owner is killed while Spark reads, and nothing is lost.

Rule: the steps, the data and the comparison with pandas are those of `pipelines.demo`; the owner is
killed when Spark has finished some micro-batches, whatever time that takes.
Must not know: how brokers work inside.

Run it with ``make demo-cluster``.
"""

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from cluster_demo.brokers import BROKERS, ClusterBrokers
from cluster_demo.stores import ClusterStores, running_stores
from kledger.process import arguments_for
from pipelines import delays
from pipelines.demo import Demonstration, demonstrate
from pipelines.demo_server import CHECK_INTERVAL_MS, RestartableServer

COMMAND_TIMEOUT_S: Final = 60
KILLED_AFTER: Final = 2
"""Micro-batches."""
BATCHES_MIN: Final = 6
"""Into how many micro-batches the stream is divided, at least."""


class ClusterDemonstration(Demonstration):
    """The demonstration over a cluster."""

    def __init__(
        self,
        cluster: "DemoCluster",
        folder: Path,
        console: Console,
        *,
        flights_max: int | None = None,
    ) -> None:
        """Make one for a cluster that runs."""
        brokers = cluster.brokers
        super().__init__(
            brokers.bootstrap, folder, console, server=brokers, flights_max=flights_max
        )
        self._cluster = cluster

    def run_streams(self, spark: SparkSession) -> None:
        """Stream all flights, and kill the owner in between."""
        self.show_status()
        self.step("stream: the owner is killed", lambda: self.stream_over_kill(spark))
        self.show_status()

    def stream_over_kill(self, spark: SparkSession) -> tuple[str, None]:
        """Kill the owner after some micro-batches; the stream must go on to its end."""
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
        change = self._cluster.brokers.kill_owner()
        self.console.print(
            f"broker {change.before}, the owner, was killed after {KILLED_AFTER} micro-batches; "
            f"{change}"
        )
        run = delays.finish_stream(query)
        delays.publish_windows(spark, self.bootstrap, self.outputs)
        return f"{run.records:,} records in {run.batches} micro-batches; {change}", None

    def run_tier(self, spark: SparkSession, server: RestartableServer) -> None:
        """Repeat it with the next owner, and print which broker that is."""
        super().run_tier(spark, server)
        self.show_status()

    def restart(self, server: RestartableServer) -> tuple[str, None]:
        """Let the next broker take over, with nothing in memory."""
        before = self._cluster.brokers.owner
        server.restart()
        after = self._cluster.brokers.owner
        return f"broker {before} stopped in order, broker {after} owns the cluster", None

    def show_status(self) -> None:
        """Print what `kledger cluster status` says."""
        self.console.print("[bold]kledger cluster status[/]")
        self.console.print(self._cluster.status(), markup=False, highlight=False, soft_wrap=True)


class DemoCluster:
    """A cluster that runs: its stores and its brokers."""

    def __init__(self, stores: ClusterStores) -> None:
        """Make the cluster in empty stores.

        Raises:
            CalledProcessError: `kledger cluster init` failed.
        """
        self._url = stores.url
        options = {f"offload.options.{name}": value for name, value in stores.options.items()}
        cluster_command("init", stores.url, "--store", stores.store, *arguments_for(options))
        settings = {**options, "log.retention.check.interval.ms": CHECK_INTERVAL_MS}
        self.brokers = ClusterBrokers(stores.url, stores.store, settings)

    def status(self) -> str:
        """Return what `kledger cluster status` prints."""
        return cluster_command("status", self._url)


def cluster_command(verb: str, *words: str) -> str:
    """Run `kledger cluster`; return what it prints.

    Raises:
        CalledProcessError: it failed, and has printed why.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kledger", "cluster", verb, *words],
        stdout=subprocess.PIPE, text=True, check=True, timeout=COMMAND_TIMEOUT_S,
    )  # fmt: skip
    return done.stdout.rstrip()


def main() -> int:
    """Run the demonstration; exit code 1 when anything differs, 130 when interrupted."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="results' folder")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N of the year")
    arguments = parser.parse_args()
    if arguments.flights is not None and arguments.flights < BATCHES_MIN:
        parser.error(f"--flights: expected at least {BATCHES_MIN}, got {arguments.flights}")

    def prepare(stack: ExitStack, folder: Path, console: Console) -> Demonstration:
        objects = stack.enter_context(tempfile.TemporaryDirectory(prefix="kledger-demo-"))
        stores = stack.enter_context(running_stores(Path(objects)))
        cluster = DemoCluster(stores)
        stack.enter_context(cluster.brokers)
        console.print(
            f"{BROKERS} brokers without disks, whose owner serves {cluster.brokers.bootstrap}; "
            f"their data is in PostgreSQL and in {stores.store}"
        )
        return ClusterDemonstration(cluster, folder, console, flights_max=arguments.flights)

    return demonstrate(arguments.out, prepare)


if __name__ == "__main__":
    sys.exit(main())

"""The demonstration: real clients, real data and unmodified Spark, checked against pandas.

Rule: it fails unless every row, count, sum and mean agrees with the original data, and again when
the flights come from the tier alone. It leaves no process behind, even when interrupted.
Must not know: how the server works inside.

Run it with ``make demo``, or against a server of your own with ``--bootstrap HOST:PORT``; the
steps of the tier need the demonstration's own server, which they restart.
"""

import argparse
import contextlib
import json
import logging
import multiprocessing
import os
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TypeAlias, TypeVar

import pandas as pd
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import kledger.sync
from pipelines import delays, expected
from pipelines.demo_server import DemoServer, RestartableServer
from pipelines.flights import (
    FLIGHT_PARTITIONS,
    FLIGHTS_TOPIC,
    KEY_COLUMNS,
    flights,
    flights_from,
    table,
)
from pipelines.loaders import LOADERS, Loader
from pipelines.report import Step, write_report
from pipelines.tier import NotFromTier, TieredTopic, TierView, enable_tier, read_values

LOAD_TIMEOUT_S = 600
TOPICS = {
    FLIGHTS_TOPIC: FLIGHT_PARTITIONS,
    **dict.fromkeys(KEY_COLUMNS, 1),
    delays.DELAYS_TOPIC: 2,
    delays.WINDOWS_TOPIC: 2,
}
Reports: TypeAlias = "multiprocessing.Queue[tuple[str, int, bool]]"
T = TypeVar("T")


class Demonstration:
    """The steps, in order, each timed and entered in the report."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        console: Console,
        *,
        server: RestartableServer | None,
        flights_max: int | None = None,
    ) -> None:
        """Make one.

        Args:
            bootstrap: HOST:PORT for Kafka clients.
            folder: for files and the report.
            console: where it says what it does.
            server: its own one, None if it uses another.
            flights_max: only the first flights of the year; None: all of them.
        """
        self.bootstrap = bootstrap
        self.flights_max = flights_max
        self.server = server
        self.outputs = delays.Outputs(folder)
        self.console = console
        self.steps: list[Step] = []

    def step(self, name: str, work: Callable[[], tuple[str, T]]) -> T:
        """Run one step; ``work`` returns what to say about it and its result."""
        start = time.monotonic()
        outcome, result = work()
        self.steps.append(Step(name, outcome, time.monotonic() - start))
        self.console.print(f"[green]✓[/] {name}: {outcome} ({self.steps[-1].seconds:.1f} s)")
        return result

    def run(self, session: "Future[SparkSession]") -> None:
        """Load, read, aggregate, write back, compare, do it again from the tier, report."""
        self.step("create topics", self.create_topics)
        self.step("load with three clients", self.load)
        spark = self.step("start Spark", lambda: ("connector from Maven", session.result()))
        self.step("batch: read, join, aggregate, write", lambda: self.batch(spark))
        self.run_streams(spark)
        results = self.step("read the results back", lambda: self.read_back(spark))
        self.step("compare with pandas", lambda: self.compare(*results))
        if self.server is not None:
            self.run_tier(spark, self.server)
        report = self.outputs.folder / "report.html"
        write_report(report, self.steps, *results)
        self.console.print(_summary(self.steps))
        self.console.print(f"report: {report}")

    def run_streams(self, spark: SparkSession) -> None:
        """Stream all flights, and stop once in between."""
        self.step("stream: stopped half-way", lambda: self.stream(spark, stop_after=3))
        self.step("stream: resumed to the end", lambda: self.stream(spark, stop_after=None))

    def run_tier(self, spark: SparkSession, server: RestartableServer) -> None:
        """Move the flights to the tier, read them from there, and compare with the first results.

        All of them are of 2013, so a local retention of a year leaves no primary copy.
        """
        moved = self.step("offload last year's flights", lambda: self.offload(server))
        self.step("start the server again", lambda: self.restart(server))
        flights = self.step(
            "flights from the tier: Kafka client",
            lambda: self.from_tier(server, moved, self.read_flights),
        )
        by_hour = self.step(
            "flights from the tier: Spark",
            lambda: self.from_tier(server, moved, lambda: self.aggregate_again(spark)),
        )
        self.step(
            "compare with the first results", lambda: self.compare_with_first(flights, by_hour)
        )

    def offload(self, server: RestartableServer) -> tuple[str, TieredTopic]:
        """Move all flights to the tier and wait until it alone has them."""
        enable_tier(server.bootstrap, FLIGHTS_TOPIC)
        with kledger.sync.connect(f"kledger://{server.native}") as client:
            moved = TierView(client, FLIGHTS_TOPIC).wait_moved()
        return f"{moved}, no primary copies left", moved

    def restart(self, server: RestartableServer) -> tuple[str, None]:
        """Start the server again, or its memory would answer instead of the tier."""
        server.restart()
        return "nothing in memory", None

    def from_tier(
        self, server: RestartableServer, moved: TieredTopic, read: Callable[[], pd.DataFrame]
    ) -> tuple[str, pd.DataFrame]:
        """Read the flights, and check that every entry came from the tier."""
        with kledger.sync.connect(f"kledger://{server.native}") as client:
            view = TierView(client, FLIGHTS_TOPIC)
            before = view.reads()
            frame = read()
            reads = view.reads().since(before)
        reads.check_only_tier(moved.entries)
        return f"{len(frame):,} rows; {reads}", frame

    def read_flights(self) -> pd.DataFrame:
        """Read every flight with librdkafka."""
        return pd.DataFrame(map(json.loads, read_values(self.bootstrap, FLIGHTS_TOPIC)))

    def aggregate_again(self, spark: SparkSession) -> pd.DataFrame:
        """Let Spark read every flight and aggregate, as the batch did."""
        frame: pd.DataFrame = delays.delays_per_carrier_and_hour(spark, self.bootstrap).toPandas()
        return frame

    def compare_with_first(self, flights: pd.DataFrame, by_hour: pd.DataFrame) -> tuple[str, None]:
        """Hold what came from the tier against what Spark read before."""
        first = pd.read_parquet(self.outputs.rows)[list(flights.columns)]
        first_by_hour = pd.read_parquet(self.outputs.delays)
        compared = [
            expected.compare("flights, tier", first, flights, ["row"]),
            expected.compare("delays, tier", first_by_hour, by_hour, ["carrier", "hour"]),
        ]
        return f"{sum(compared):,} values agree", None

    def create_topics(self) -> tuple[str, None]:
        """Create every topic through the admin API; the year is long past any default retention."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        created = admin.create_topics(
            [
                NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
                for name, partitions in TOPICS.items()
            ]
        )
        for future in created.values():
            future.result(30)
        return f"{len(created)} topics", None

    def load(self) -> tuple[str, None]:
        """Run the three loaders at once, each a process, with a progress bar each."""
        context = multiprocessing.get_context("spawn")
        reports: Reports = context.Queue()
        processes = [
            context.Process(
                target=_load,
                args=(loader.client, self.bootstrap, reports, self.flights_max),
                daemon=True,
            )
            for loader in LOADERS
        ]
        with _running(processes):
            acknowledged = self._follow(processes, reports)
        wanted = sum(map(self._expected_records, LOADERS))
        if acknowledged != wanted:
            raise expected.Mismatch(f"load: expected {wanted} records, got {acknowledged}")
        return f"{acknowledged:,} records acknowledged", None

    def _follow(
        self,
        processes: list[SpawnProcess],
        reports: Reports,
    ) -> int:
        """Show progress until every loader has reported its end; return the records in all."""
        columns = (
            TextColumn("{task.description:>16}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        deadline = time.monotonic() + LOAD_TIMEOUT_S
        done: dict[str, int] = {}
        with Progress(*columns, console=self.console) as progress:
            bars = {
                each.client: progress.add_task(each.client, total=self._expected_records(each))
                for each in LOADERS
            }
            while len(done) < len(LOADERS):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"loading took more than {LOAD_TIMEOUT_S} s")
                try:
                    client, count, is_end = reports.get(timeout=1)
                except queue.Empty:
                    _check_alive(processes)
                    continue
                progress.update(bars[client], completed=count)
                if is_end:
                    done[client] = count
        return sum(done.values())

    def _expected_records(self, loader: Loader) -> int:
        small = sum(len(table(name)) for name in KEY_COLUMNS) if loader.with_tables else 0
        return small + len(flights_from(loader.origin, self.flights_max))

    def batch(self, spark: SparkSession) -> tuple[str, None]:
        """Run the batch job."""
        delays.run_batch(spark, self.bootstrap, self.outputs)
        return "Parquet and topic written", None

    def stream(self, spark: SparkSession, *, stop_after: int | None) -> tuple[str, None]:
        """Run the stream; without ``stop_after`` to the end, and publish its windows."""
        run = delays.run_stream(spark, self.bootstrap, self.outputs, stop_after=stop_after)
        if stop_after is None:
            delays.publish_windows(spark, self.bootstrap, self.outputs)
        return f"{run.records:,} records in {run.batches} micro-batches", None

    def read_back(self, spark: SparkSession) -> tuple[str, tuple[pd.DataFrame, pd.DataFrame]]:
        """Read both result topics again through Spark's Kafka source."""
        frames = [
            delays.read_back(spark, self.bootstrap, topic, path).toPandas()
            for topic, path in (
                (delays.DELAYS_TOPIC, self.outputs.delays),
                (delays.WINDOWS_TOPIC, self.outputs.windows),
            )
        ]
        return f"{sum(map(len, frames)):,} rows", (frames[0], frames[1])

    def compare(self, delay_rows: pd.DataFrame, window_rows: pd.DataFrame) -> tuple[str, None]:
        """Hold everything that came back against pandas."""
        by_hour = expected.delays_per_carrier_and_hour(self.flights_max)
        by_window = expected.delays_per_carrier_and_window(self.flights_max)
        hour_keys, window_keys = ["carrier", "hour"], ["window_start", "carrier"]
        files = {
            path: _without_zone(pd.read_parquet(path))
            for path in (self.outputs.rows, self.outputs.delays, self.outputs.windows)
        }
        compared = [
            expected.compare(
                "flights as read", flights(self.flights_max), files[self.outputs.rows], ["row"]
            ),
            expected.compare("delays, Parquet", by_hour, files[self.outputs.delays], hour_keys),
            expected.compare("delays, topic", by_hour, delay_rows, hour_keys),
            expected.compare(
                "windows, Parquet", by_window, files[self.outputs.windows], window_keys
            ),
            expected.compare("windows, topic", by_window, _without_zone(window_rows), window_keys),
        ]
        return f"{sum(compared):,} values agree", None


def _load(client: str, bootstrap: str, reports: Reports, flights_max: int | None) -> None:
    """Run one loader in its own process."""
    loader = next(loader for loader in LOADERS if loader.client == client)
    with contextlib.suppress(KeyboardInterrupt):
        count = loader.run(bootstrap, lambda done: reports.put((client, done, False)), flights_max)
        reports.put((client, count, True))


@contextlib.contextmanager
def _running(processes: list[SpawnProcess]) -> Iterator[None]:
    """Start processes; end every one of them when the block is left, however it is left."""
    try:
        for process in processes:
            process.start()
        yield
    finally:
        for process in processes:
            if process.pid is not None:
                process.terminate()
        for process in processes:
            if process.pid is not None:
                process.join()


def _check_alive(processes: list[SpawnProcess]) -> None:
    for process in processes:
        if process.exitcode not in (None, 0):
            raise RuntimeError(f"a loader ended with exit code {process.exitcode}")


def _without_zone(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop time zones (all are UTC), so that both sides have the same type."""
    zoned = frame.select_dtypes(include=["datetimetz"]).columns
    return frame.assign(**{name: frame[name].dt.tz_localize(None) for name in zoned})


def _summary(steps: list[Step]) -> Table:
    summary = Table(title="A year of flights through kledger")
    summary.add_column("step")
    summary.add_column("outcome")
    summary.add_column("seconds", justify="right")
    for step in steps:
        summary.add_row(step.name, step.outcome, f"{step.seconds:.1f}")
    summary.add_section()
    summary.add_row("all", "", f"{sum(step.seconds for step in steps):.1f}")
    return summary


@contextlib.contextmanager
def _spark(folder: Path) -> Iterator["Future[SparkSession]"]:
    """Start Spark beside the loading; stop it and its JVM when the block is left."""
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(delays.spark_session, folder)
        try:
            yield session
        finally:
            spark = session.result()
            gateway = spark.sparkContext._gateway  # the JVM's only handle
            spark.stop()
            assert gateway is not None
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()


Prepare: TypeAlias = Callable[[contextlib.ExitStack, Path, Console], Demonstration]
"""Starts what a demonstration needs, which the stack ends; gets the folder of the results."""


def demonstrate(out: Path, prepare: Prepare) -> int:
    """Prepare a demonstration and run it with Spark.

    Args:
        out: the folder of the results, which is emptied first.
        prepare: is called once.

    Returns:
        The exit code: 1 when anything differs, 130 when interrupted.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    console = Console()
    # Spark forks to start its JVM; the server's gRPC would take part in that, and log about it.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    try:
        with contextlib.ExitStack() as stack:
            folder = out.resolve()
            demonstration = prepare(stack, folder, console)
            demonstration.run(stack.enter_context(_spark(folder)))
    except (expected.Mismatch, NotFromTier) as error:
        console.print(f"[red]differs:[/] {error}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    return 0


def main() -> int:
    """Run the demonstration; exit code 1 when anything differs, 130 when interrupted."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--bootstrap", help="use this server instead of an embedded one")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="results' folder")
    arguments = parser.parse_args()

    def prepare(stack: contextlib.ExitStack, folder: Path, console: Console) -> Demonstration:
        if arguments.bootstrap is not None:
            return Demonstration(arguments.bootstrap, folder, console, server=None)
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="kledger-demo-"))
        server = stack.enter_context(DemoServer(Path(data), folder / "tier"))
        console.print(f"kledger serves {server.bootstrap}, its tier is {folder / 'tier'}")
        return Demonstration(server.bootstrap, folder, console, server=server)

    return demonstrate(arguments.out, prepare)


if __name__ == "__main__":
    sys.exit(main())

"""kledger serve: run a server until a signal stops it.

Settings come from --config FILE, then KLEDGER_<SECTION>_<KEY>, then --set KEY=VALUE, then the other
flags; later ones win. Names of Apache Kafka's and Pulsar's settings are accepted.

SIGTERM, SIGINT and SIGHUP stop it in order, with exit code 0; under nohup a SIGHUP is ignored.
No signal reloads settings: Kafka's own tools change those that can change while the server runs.

With --workers N the data folder has a store for each of N processes. Clients need one address only:
all workers listen on it, and each on its own port, 1 to N above it. The ready line comes when
all are ready. A worker that dies is started again; a second signal ends them at once.

With --cluster URL --store URL the data is in a database and an object store, which other brokers
use, too; one of them owns it. The others print `kledger standby`, and the ready line when they own
it; see docs/CLUSTER.md.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kledger import quick_start
from kledger.cli import EXIT_FAILURE, failure, usage_error
from kledger.cli.given_settings import given_settings
from kledger.kubernetes_variables import kubernetes_variables
from kledger.security.private_folder import UnsafeFolder, keep_private
from kledger.setting_values import SettingError
from kledger.settings import Settings, own_names, variable_of

if TYPE_CHECKING:
    from kledger.workers.worker_identity import WorkerIdentity

logger = logging.getLogger("kledger")

LOG_FORMAT = "%(asctime)s %(levelname)s {}%(name)s: %(message)s"
"""With the worker, if there are several."""
# With nothing cyclic on the hot path, frequent collections only cost time.
GC_THRESHOLDS = (50_000, 20, 100)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; a flag that is not given stays unset, so that other sources count."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--data", metavar="DIR", help="keep all data in this folder")
    where.add_argument(
        "--memory", action="store_true", default=None, help="keep all data in memory"
    )
    where.add_argument(
        "--cluster", metavar="URL", help="keep all data in a cluster: the URL of its database"
    )
    parser.add_argument("--store", metavar="URL", help="of the cluster's object store")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="listen for Kafka clients")
    parser.add_argument("--native", metavar="HOST:PORT", help="listen for native clients")
    parser.add_argument("--admin", metavar="HOST:PORT", help="listen for administrators")
    parser.add_argument(
        "--durability",
        metavar="fsync|os",
        help="acknowledge after a sync, or after a write to the operating system",
    )
    parser.add_argument("--workers", metavar="N", help="serve with N processes, see above")
    # Only for a process that is a worker already.
    parser.add_argument("--worker", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings in TOML")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments",
        help="one setting, under our name or Kafka's; may be repeated",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal or a crash; return the exit code."""
    if arguments.worker is not None:
        return _run_worker()
    flags = {
        "server.data": arguments.data,
        "server.memory": False if arguments.data is not None else arguments.memory,
        "server.kafka": arguments.kafka,
        "server.native": arguments.native,
        "server.admin": arguments.admin,
        "server.workers": arguments.workers,
        "storage.durability": arguments.durability,
        "cluster.url": arguments.cluster,
        "cluster.store": arguments.store,
    }
    try:
        settings = given_settings(arguments, flags)
    except SettingError as error:
        return usage_error(str(error))
    server = settings.server
    if server.kafka is None and server.native is None and not settings.kafka.listener_addresses:
        return usage_error(
            "server.kafka: expected HOST:PORT, as no other listener is named, got none"
        )
    if settings.cluster.url is not None and (mistake := _cluster_mistake(settings)) is not None:
        return usage_error(mistake)
    _log_to_stderr(settings)
    _warn_of_service_variables()
    return _run_server(settings) if server.workers is None else _run_parent(settings)


def _cluster_mistake(settings: Settings) -> str | None:
    """Return what a broker of a cluster cannot be started with."""
    if settings.cluster.store is None:
        return "cluster.store: expected the URL of an object store, got none"
    if settings.server.workers is not None:
        return "server.workers: expected none with cluster.url, as a cluster has one owner"
    return None


def _run_worker() -> int:
    """Serve as one of several workers, with what the parent has sent."""
    from kledger.workers.worker_start import NoWorkerStart, WorkerStart

    try:
        start = WorkerStart.read()
    except NoWorkerStart as error:
        return usage_error(f"--worker: {error}")
    _log_to_stderr(start.settings, f"worker-{start.identity.index} ")
    return _run_server(start.settings, start.identity)


def _run_parent(settings: Settings) -> int:
    """Serve with workers."""
    # Neither the server nor its event loop is loaded.
    from kledger.workers.worker_plan import WorkersMistake
    from kledger.workers.worker_server import serve_workers

    def show_ready(line: str) -> None:
        quick_start.freeze_objects(GC_THRESHOLDS)
        print(line, flush=True)

    try:
        if not settings.server.memory:
            keep_private(settings.server.data)
        return asyncio.run(serve_workers(settings, signals=_signals_to_end(), on_ready=show_ready))
    except (WorkersMistake, UnsafeFolder) as error:
        return usage_error(str(error))
    except OSError as error:
        return usage_error(f"{settings.server.data}: {error.strerror or error}")


def _run_server(settings: Settings, worker: "WorkerIdentity | None" = None) -> int:
    """Serve in this process."""
    import uvloop

    from kledger.ledger import LedgerError
    from kledger.runtime.free_memory import keep_freed_buffers
    from kledger.wiring import CannotStart

    keep_freed_buffers()
    has_cluster = settings.cluster.url is not None
    try:
        if not (settings.server.memory or has_cluster):
            keep_private(settings.server.data)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve_cluster(settings) if has_cluster else _serve(settings, worker))
    except UnsafeFolder as error:
        return usage_error(str(error))
    except CannotStart as error:
        return usage_error(str(error)) if error.is_mistake else failure(str(error))
    except LedgerError as error:
        return failure(f"the server did not close everything: {error}")


def _log_to_stderr(settings: Settings, worker: str = "") -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.server.log_level.upper(),
        format=LOG_FORMAT.format(worker),
    )


def _warn_of_service_variables() -> None:
    if names := kubernetes_variables(os.environ, map(variable_of, own_names())):
        logger.warning(
            "variables of Kubernetes services are ignored: %s",
            ", ".join(names),
        )


def _signals_to_end() -> list[signal.Signals]:
    """Return the signals that stop the server; a SIGHUP that nohup ignores stays ignored."""
    found = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


class _ServerEnd:
    """The end of the server: the exit code, as soon as a signal or a crash has set it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.code: asyncio.Future[int] = self.loop.create_future()
        self._signals = _signals_to_end()
        for number in self._signals:
            self.loop.add_signal_handler(number, self.end, 0, number.name)

    def end(self, code: int, reason: str) -> None:
        """End the server, if nothing else has."""
        if not self.code.done():
            logger.info("stopping: %s", reason)
            self.code.set_result(code)

    def let_signals_kill(self) -> None:
        """Let the next signal end the process at once."""
        for number in self._signals:
            self.loop.remove_signal_handler(number)


async def _serve_cluster(settings: Settings) -> int:
    """Serve as a broker without a disk, or as a server of several nodes."""
    # Neither the database nor what it needs is loaded by a server with a data folder.
    from kledger.cluster_settings import count_nodes

    ending = _ServerEnd()
    ending.code.add_done_callback(lambda _: ending.let_signals_kill())

    def announce(line: str) -> None:
        quick_start.freeze_objects(GC_THRESHOLDS)
        print(line, flush=True)

    if await count_nodes(settings) == 1:
        from kledger.cluster_broker import ClusterBroker

        return await ClusterBroker(settings, announce=announce).run(ending.code)
    from kledger.nodes.node_server import NodeServer

    return await NodeServer(settings, announce=announce).run(ending.code)


async def _serve(settings: Settings, worker: "WorkerIdentity | None") -> int:
    """Start, print the ready line, wait for the end, stop in order."""
    from kledger.wiring import BrokerServer

    ending = _ServerEnd()
    member = None
    if worker is not None:
        # A server that is alone does not load it.
        from kledger.cluster import WorkerMember
        from kledger.workers.worker_start import watch_parent

        member = WorkerMember(worker)
        watch_parent(ending.loop, partial(ending.end, 0, "the parent process has ended"))
    server = BrokerServer(
        settings,
        on_crash=lambda error: ending.end(EXIT_FAILURE, f"crash: {error!r}"),
        member=member,
    )
    try:
        await server.start()
        quick_start.freeze_objects(GC_THRESHOLDS)
        print(server.ready_line(), flush=True)
        code = await ending.code
        # A second signal ends the process at once. Not a worker: a service manager may signal all
        # processes of the service, and the parent does so, too.
        if worker is None:
            ending.let_signals_kill()
    finally:
        await server.stop()
    return code

"""A server with workers: from its settings to its processes, and to the end of the last one.

Rule: all ports are reserved and the folder is locked and recorded before the first worker starts,
in this order, so that a mistake changes nothing. Neither the gateway nor a store is opened here.
Must not know: when workers are started again.
"""

import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import closing

from kledger.gateway.listeners.listener_settings import plans_of
from kledger.process import server_environment
from kledger.runtime.clock import SystemClock
from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.workers.reserved_ports import ReservedPorts
from kledger.workers.worker_identity import Address
from kledger.workers.worker_plan import (
    ADMIN,
    NATIVE,
    ListenAddresses,
    ListeningPoint,
    WorkersMistake,
    plan_addresses,
    plan_worker,
)
from kledger.workers.worker_processes import WorkerCommand, WorkerProcesses
from kledger.workers.worker_start import WorkerStart, changed
from kledger.workers.workers_folder import WorkersFolder, wait_for_orphans


async def serve_workers(
    settings: Settings, *, signals: Iterable[signal.Signals], on_ready: Callable[[str], None]
) -> int:
    """Run all workers until a signal ends them; return the exit code.

    Args:
        settings: of the whole server, with `server.workers`.
        signals: that end it.
        on_ready: called with the ready line.

    Raises:
        WorkersMistake: they cannot start like this.
        OSError: the folder cannot be used.
    """
    server, count = settings.server, settings.server.workers
    assert count is not None, "without workers"
    if server.memory:
        raise WorkersMistake("server.memory: expected a data folder with workers, got no folder")
    listeners = listeners_of(settings)
    clock = SystemClock()
    await wait_for_orphans(server.data, clock)
    with closing(ReservedPorts()) as ports:
        bound = {
            point: ports.reserve(point.listener, address)
            for point, address in plan_addresses(listeners, count).items()
        }
        folder = WorkersFolder(server.data, count=count, node_id=settings.kafka.node_id)
        with closing(folder):
            commands = []
            for index in range(count):
                identity, changes = plan_worker(
                    index,
                    listeners,
                    bound,
                    count=count,
                    made_with=folder.record.made_with,
                    node_id=settings.kafka.node_id,
                    folder=server.data,
                )
                start = WorkerStart(identity=identity, settings=changed(settings, changes))
                commands.append(_command(start))
            line = ready_line(listeners, bound)
            processes = WorkerProcesses(commands, on_ready=lambda: on_ready(line), clock=clock)
            return await processes.run(signals)


def listeners_of(settings: Settings) -> ListenAddresses:
    """Return where the settings let a server listen."""

    def address(name: str) -> Address | None:
        text = getattr(settings.server, name)
        return None if text is None else split_address(f"server.{name}", text)

    return ListenAddresses(
        kafka=address("kafka"),
        others=plans_of(settings.kafka),
        native=address("native"),
        admin=address("admin"),
        advertised_port=settings.kafka.advertised_port,
    )


def ready_line(listeners: ListenAddresses, bound: dict[ListeningPoint, Address]) -> str:
    """Return the line of a server without workers, with the bootstrap addresses.

    There is an admin listener for each worker; their addresses are separated by commas.
    """
    shared = {each: joined_address(*bound[ListeningPoint(each, None)]) for each in listeners.shared}
    native = shared.pop(NATIVE, "-")
    admin = [joined_address(*each) for point, each in bound.items() if point.listener == ADMIN]
    kafka = ",".join(shared.values()) or "-"
    return f"kledger ready kafka={kafka} native={native} admin={','.join(admin) or '-'}"


def _command(start: WorkerStart) -> WorkerCommand:
    # The folder is only for lists of processes; the worker reads everything from standard input.
    words = [sys.executable, "-P", "-m", "kledger", "serve", "--worker", start.settings.server.data]
    return WorkerCommand(words=words, content=start.encode(), environment=server_environment())

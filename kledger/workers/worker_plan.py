"""Worker plan: where the workers of one server listen, and the settings of each.

| what               | of worker K                                                              |
|--------------------|--------------------------------------------------------------------------|
| bootstrap port     | the one of the settings, which all workers listen on                     |
| its own port       | bootstrap port + 1 + K, which metadata names; any free one if that is 0  |
| advertised port    | the one of the settings + 1 + K, if there is one                         |
| admin port         | the one of the settings + K, or any free one                             |
| `node.id`          | the one of the settings + K                                              |
| data folder        | `DIR/worker-K`                                                           |

Rule: pure. A port belongs to one listener of one worker, also of two different hosts. Settings are
named `section.field` here, since their classes would import the ledger.
Must not know: files, sockets, processes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kledger.gateway.listeners.listener_plan import ListenerPlan
from kledger.setting_values import joined_address
from kledger.workers.worker_identity import Address, WorkerIdentity

KAFKA: Final = "kafka"
"""The listener of `server.kafka`."""
NATIVE: Final = "native"
ADMIN: Final = "admin"
PORT_MAX: Final = 65_535


class WorkersMistake(ValueError):
    """Workers cannot start like this; the message is one line for the user."""


class ListeningPoint(NamedTuple):
    """Something that a server with workers listens on.

    Attributes:
        listener: KAFKA, NATIVE, ADMIN or the name of a listener, which has capital letters.
        worker: whose own it is; None: the workers share it.
    """

    listener: str
    worker: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddresses:
    """Where the settings let a server listen; port 0 is any.

    Attributes:
        kafka: of `server.kafka`; not used if there are others.
        others: of the setting `listeners`.
        advertised_port: goes with `kafka`; 0: the port that is bound.
    """

    kafka: Address | None
    others: Sequence[ListenerPlan] = ()
    native: Address | None = None
    admin: Address | None = None
    advertised_port: int = 0

    @property
    def shared(self) -> dict[str, Address]:
        """The addresses that all workers listen on, by listener."""
        found = {each.name: (each.host, each.port) for each in self.others}
        if not self.others and self.kafka is not None:
            found[KAFKA] = self.kafka
        if self.native is not None:
            found[NATIVE] = self.native
        return found

    @property
    def advertised(self) -> dict[str, int]:
        """The ports that are advertised in place of bound ones, by listener."""
        found = {each.name: each.advertised_port for each in self.others}
        if not self.others:
            found[KAFKA] = self.advertised_port
        return {name: port for name, port in found.items() if port}


def plan_addresses(listeners: ListenAddresses, count: int) -> dict[ListeningPoint, Address]:
    """Return everything that `count` workers listen on; port 0 is any free one.

    Raises:
        WorkersMistake: a port would be used twice, or does not exist.
    """
    found: dict[ListeningPoint, Address] = {}
    for listener, (host, port) in listeners.shared.items():
        found[ListeningPoint(listener, None)] = host, port
        for worker in range(count):
            found[ListeningPoint(listener, worker)] = host, _own_port(listener, port, worker)
    if listeners.admin is not None:
        host, port = listeners.admin
        for worker in range(count):
            found[ListeningPoint(ADMIN, worker)] = host, _counted(ADMIN, port, worker)
    for listener, port in listeners.advertised.items():
        _own_port(f"advertised port of {listener}", port, count - 1)
    _check_different(found, count)
    return found


def plan_worker(
    index: int,
    listeners: ListenAddresses,
    bound: Mapping[ListeningPoint, Address],
    *,
    count: int,
    made_with: int,
    node_id: int,
    folder: str,
) -> tuple[WorkerIdentity, dict[str, object]]:
    """Return the identity of a worker, and the settings in which it differs from the others.

    Args:
        index: of the worker.
        listeners: of the settings.
        bound: what `plan_addresses` returned, with the ports that were found for 0.
        count: workers that run now.
        made_with: workers that the folder was made with.
        node_id: of the settings.
        folder: of all workers.
    """
    identity = WorkerIdentity(
        index=index,
        count=count,
        made_with=made_with,
        folder=folder,
        bootstrap={each: bound[ListeningPoint(each, None)] for each in listeners.shared},
    )
    own = {point.listener: address for point, address in bound.items() if point.worker == index}
    changes: dict[str, object] = {
        "kafka.node_id": node_id + index,
        "server.data": worker_folder(folder, index),
    }
    for listener in own.keys() & {KAFKA, NATIVE, ADMIN}:
        changes[f"server.{listener}"] = joined_address(*own[listener])
    if listeners.others:
        changes["kafka.listener_addresses"] = ",".join(
            f"{each.name}://{joined_address(*own[each.name])}" for each in listeners.others
        )
        changes["kafka.advertised_addresses"] = ",".join(
            f"{each.name}://"
            + joined_address(
                each.advertised_host, _own_port(each.name, each.advertised_port, index)
            )
            for each in listeners.others
            if each.advertised_host
        )
    elif listeners.advertised_port:
        changes["kafka.advertised_port"] = _own_port(KAFKA, listeners.advertised_port, index)
    return identity, changes


def worker_folder(folder: str, index: int) -> str:
    """Return the data folder of one worker."""
    return f"{folder}/worker-{index}"


def _own_port(what: str, port: int, worker: int) -> int:
    return _counted(what, port, worker + 1)


def _counted(what: str, port: int, step: int) -> int:
    """Return the port that is so many above another; 0 stays any.

    Raises:
        WorkersMistake: there is no such port.
    """
    if port and port + step > PORT_MAX:
        raise WorkersMistake(
            f"{what}: workers need the ports up to {port + step}, expected at most {PORT_MAX}"
        )
    return port + step if port else 0


def _check_different(found: Mapping[ListeningPoint, Address], count: int) -> None:
    owners: dict[int, ListeningPoint] = {}
    for point, (_, port) in found.items():
        other = owners.setdefault(port, point) if port else point
        if other != point:
            raise WorkersMistake(
                f"{_described(point)}: port {port} is taken by {_described(other)}; with {count} "
                f"workers the ports of kafka and native are P to P + {count}, those of admin P to "
                f"P + {count - 1}"
            )


def _described(point: ListeningPoint) -> str:
    return point.listener if point.worker is None else f"{point.listener} of worker {point.worker}"

"""Where the nodes of a cluster listen in one server.

| what               | of node K                                                                |
|--------------------|--------------------------------------------------------------------------|
| bootstrap port     | the one of the settings, which all nodes of the server listen on         |
| its own port       | bootstrap port + K, which metadata names; any free one if that is 0      |
| advertised port    | the one of the settings + K, if there is one                             |
| admin port         | the one of the settings + K; the server itself has that of the settings  |
| port for peers     | that of `cluster.peers` + K, or any free one                             |
| `node.id`          | K                                                                        |

Rule: a server reserves the ports of all nodes when it starts, as it may have to serve each of them
at any time; a port that is in use is a mistake that shows at the start.
Must not know: sessions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.workers.reserved_ports import ReservedPorts
from kledger.workers.worker_identity import Address
from kledger.workers.worker_plan import (
    NATIVE,
    PORT_MAX,
    ListenAddresses,
    ListeningPoint,
    WorkersMistake,
    plan_addresses,
    plan_worker,
)
from kledger.workers.worker_server import listeners_of
from kledger.workers.worker_start import changed

_SERVER_ADMIN: Final = "admin of the server"
_PEERS: Final = "cluster.peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddresses:
    """What is of one node in a server.

    Attributes:
        settings: of the node.
        bootstrap: addresses that it shares with the other nodes, by listener.
        peers: where the other nodes reach it.
    """

    settings: Settings
    bootstrap: Mapping[str, Address]
    peers: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddresses:
    """Where a server listens for all nodes.

    Attributes:
        admin: of the server itself, "-" without one.
        ready_line: for programs that wait until the server serves.
        nodes: by id, from 1.
    """

    admin: str
    ready_line: str
    nodes: Mapping[int, NodeAddresses]


def reserve_addresses(settings: Settings, count: int, ports: ReservedPorts) -> ServerAddresses:
    """Reserve the ports of a server.

    Args:
        settings: of the server.
        count: nodes of the cluster.
        ports: keeps what is reserved.

    Raises:
        WorkersMistake: a port is in use, does not exist, or would be used twice.
    """
    listeners, admin = listeners_of(settings), "-"
    if listeners.admin is not None:
        host, port = ports.reserve(_SERVER_ADMIN, listeners.admin)
        admin = joined_address(host, port)
        # The plan begins with the first node; the settings name what is before it.
        of_nodes = host, listeners.admin[1] and port + 1
        listeners = replace(listeners, admin=of_nodes)
    bound = {
        point: ports.reserve(point.listener, address)
        for point, address in plan_addresses(listeners, count).items()
    }
    nodes: dict[int, NodeAddresses] = {}
    for index in range(count):
        identity, changes = plan_worker(
            index, listeners, bound, count=count, made_with=count, node_id=1, folder=""
        )
        nodes[index + 1] = NodeAddresses(
            settings=changed(settings, changes),
            bootstrap=identity.bootstrap,
            peers=ports.reserve(_PEERS, _peer_address(settings, listeners, index + 1)),
        )
    shared = {each: joined_address(*bound[ListeningPoint(each, None)]) for each in listeners.shared}
    native = shared.pop(NATIVE, "-")
    kafka = ",".join(shared.values()) or "-"
    return ServerAddresses(
        admin=admin,
        ready_line=f"kledger ready kafka={kafka} native={native} admin={admin}",
        nodes=nodes,
    )


def _peer_address(settings: Settings, listeners: ListenAddresses, node: int) -> Address:
    """Return where the other nodes are to reach a node; port 0 is any free one."""
    given = settings.cluster.peers
    if given is None:
        host, _ = next(iter(listeners.shared.values()))
        return host, 0
    host, port = split_address(_PEERS, given)
    if port and port + node > PORT_MAX:
        raise WorkersMistake(
            f"{_PEERS}: node {node} needs port {port + node}, expected at most {PORT_MAX}"
        )
    return host, port + node if port else 0

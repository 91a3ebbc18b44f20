"""Node addresses: where the nodes that a server owns listen, and the settings of each.

| what               | of node K                                                                   |
|--------------------|-----------------------------------------------------------------------------|
| bootstrap port     | the one of the settings, on which every node of the server listens          |
| its own port       | bootstrap port + K, which metadata names; any free one if that is 0         |
| advertised port    | the one of the settings + K, if there is one                                |
| port for peers     | the one of `cluster.peers` + K; any free one if that is 0, or not set       |
| admin port         | the one of the settings + K; that one is the server's own                   |
| `node.id`          | K                                                                           |

Rule: pure. A server may own any of the nodes at some time, so it has ports for all of them. A port
belongs to one listener of one node, also of two different hosts. Settings are named
`section.field`.
Must not know: sockets, which nodes a server owns.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kledger.setting_values import joined_address
from kledger.workers.worker_identity import Address
from kledger.workers.worker_plan import ADMIN, KAFKA, NATIVE, PORT_MAX, ListenAddresses

PEERS: Final = "peers"
"""What other brokers connect to."""


class NodesMistake(ValueError):
    """A server cannot own nodes like this; the message is one line for the user."""


class NodeListener(NamedTuple):
    """Something that a server of a cluster of nodes listens on.

    Attributes:
        listener: KAFKA, NATIVE, PEERS, ADMIN or the name of a listener, which has capital letters.
        node: whose own it is, from 1; None: it is the server's, or all its nodes share it.
    """

    listener: str
    node: int | None


def plan_node_addresses(
    listening: ListenAddresses, peers: Address, nodes: int
) -> dict[NodeListener, Address]:
    """Return everything that a server may listen on; port 0 is any free one.

    Args:
        listening: where the settings let it listen.
        peers: behind which the ports for other brokers are.
        nodes: of the cluster.

    Raises:
        NodesMistake: a port would be used twice, or does not exist.
    """
    found: dict[NodeListener, Address] = {}
    for listener, (host, port) in listening.shared.items():
        found[NodeListener(listener, None)] = host, port
        for node in range(1, nodes + 1):
            found[NodeListener(listener, node)] = host, _own_port(listener, port, node, nodes)
    if listening.admin is not None:
        host, port = found[NodeListener(ADMIN, None)] = listening.admin
        for node in range(1, nodes + 1):
            found[NodeListener(ADMIN, node)] = host, _own_port(ADMIN, port, node, nodes)
    host, port = peers
    for node in range(1, nodes + 1):
        found[NodeListener(PEERS, node)] = host, _own_port(PEERS, port, node, nodes)
    for listener, port in listening.advertised.items():
        _own_port(f"advertised port of {listener}", port, nodes, nodes)
    _check_different(found, nodes)
    return found


def node_changes(
    node: int, listening: ListenAddresses, bound: Mapping[NodeListener, Address]
) -> dict[str, object]:
    """Return the settings in which a node differs from its server.

    Args:
        node: from 1.
        listening: of the settings.
        bound: what `plan_node_addresses` returned, with the ports that were found for 0.
    """
    own = {point.listener: address for point, address in bound.items() if point.node == node}
    changes: dict[str, object] = {"kafka.node_id": node}
    for listener in own.keys() & {KAFKA, NATIVE, ADMIN}:
        changes[f"server.{listener}"] = joined_address(*own[listener])
    if listening.others:
        changes["kafka.listener_addresses"] = ",".join(
            f"{each.name}://{joined_address(*own[each.name])}" for each in listening.others
        )
        changes["kafka.advertised_addresses"] = ",".join(
            f"{each.name}://"
            + joined_address(each.advertised_host, _behind(each.advertised_port, node))
            for each in listening.others
            if each.advertised_host
        )
    elif listening.advertised_port:
        changes["kafka.advertised_port"] = _behind(listening.advertised_port, node)
    return changes


def advertised_peers(advertised: Address, node: int) -> Address:
    """Return what other brokers connect to for a node; port 0 is the one that is bound."""
    host, port = advertised
    return host, _behind(port, node)


def _behind(port: int, node: int) -> int:
    return port + node if port else 0


def _own_port(what: str, port: int, node: int, nodes: int) -> int:
    """Return the port of a node; 0 stays any. Raises NodesMistake: there is no such port."""
    if port and port + nodes > PORT_MAX:
        raise NodesMistake(
            f"{what}: expected a port of at most {PORT_MAX - nodes}, as {nodes} nodes need the "
            f"ports behind it, got {port}"
        )
    return _behind(port, node)


def _check_different(found: Mapping[NodeListener, Address], nodes: int) -> None:
    owners: dict[int, NodeListener] = {}
    for point, (_, port) in found.items():
        other = owners.setdefault(port, point) if port else point
        if other != point:
            raise NodesMistake(
                f"{_described(point)}: port {port} is taken by {_described(other)}; with {nodes} "
                f"nodes the ports of kafka and native are P to P + {nodes}, those of peers P + 1 "
                f"to P + {nodes}"
            )


def _described(point: NodeListener) -> str:
    return point.listener if point.node is None else f"{point.listener} of node {point.node}"

"""What the nodes of a cluster have in common in its database: one suite over memory and PostgreSQL.

What one node has is tested as a cluster with one owner is, in `test_database`.
"""

from uuid import UUID

import pytest

from kledger.ledger.cluster.database import (
    Change,
    NoCluster,
    OwnerObservation,
    SessionBroker,
    SessionFenced,
)
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.nodes_database import (
    NODES_MAX,
    PEER_SECRET_BYTES,
    DescribedNode,
    NodesDatabase,
)
from tests.ledger.cluster.conftest import Databases
from tests.ledger.cluster.database_words import broker, groups, inline, owner, put, rows

FIRST, SECOND = UUID(int=1), UUID(int=2)


def create(databases: Databases, nodes: int = 3) -> NodesDatabase:
    made = databases.cluster()
    made.create(cluster_id="test-cluster", store="memory://", nodes=nodes)
    return made


def servers(database: NodesDatabase) -> list[tuple[SessionBroker, bool]]:
    found = database.observe_nodes().servers
    assert all(each.is_live for each in found)
    return [(each.server, each.is_draining) for each in found]


def test_nodes_share_a_secret_and_have_incarnations_of_their_own(databases: Databases) -> None:
    create(databases)
    of_nodes = [databases.node(node).describe() for node in (1, 2, 3)]
    cluster = databases.cluster().describe()
    assert 4 == len({each.incarnation for each in (cluster, *of_nodes)})
    assert {("test-cluster", "memory://", 3, cluster.peer_secret)} == {
        (each.cluster_id, each.store, each.nodes, each.peer_secret) for each in of_nodes
    }
    assert PEER_SECRET_BYTES == len(cluster.peer_secret)
    assert "peer_secret" not in repr(cluster)


def test_cluster_with_one_owner_has_no_secret(databases: Databases) -> None:
    create(databases, nodes=1)
    found = databases.cluster().describe()
    assert (1, b"") == (found.nodes, found.peer_secret)


def test_most_nodes_that_a_cluster_can_have_are_created(databases: Databases) -> None:
    found = create(databases, NODES_MAX).observe_nodes()
    assert [*range(1, NODES_MAX + 1)] == [each.node for each in found.nodes]


def test_node_has_the_server_that_was_preferred_last(databases: Databases) -> None:
    database = create(databases)
    for server_id in (7, 8):
        database.prefer_server(2, server_id)
        database.prefer_server(3, server_id)
    database.prefer_server(3, None)
    database.prefer_server(1, None)
    assert [None, 8, None] == [each.preferred for each in database.observe_nodes().nodes]


def test_node_that_the_cluster_does_not_have_is_refused(databases: Databases) -> None:
    create(databases)
    with pytest.raises(NoCluster, match="no node 4"):
        databases.node(4).describe()


def test_each_node_has_owners_commits_and_groups_of_its_own(databases: Databases) -> None:
    create(databases)
    first, second = databases.node(1), databases.node(2)
    of_first, of_second = owner(first, 7), owner(second, 8)
    first.commit(of_first, 1, put(b"k", b"first"))
    second.commit(of_second, 1, put(b"k", b"second"))
    second.commit(of_second, 2, Change(group=inline(b"x")))

    assert ({b"k": b"first"}, {b"k": b"second"}) == (rows(first), rows(second))
    assert (0, 1) == (len(groups(first)), len(groups(second)))
    assert first.fence(of_first, 1)
    second.commit(of_second, 3, Change())
    with pytest.raises(SessionFenced):
        first.commit(of_first, 2, Change())


def test_owners_of_all_nodes_are_observed(databases: Databases) -> None:
    database = create(databases)
    unowned = [DescribedNode(node, 0, None, None, 0) for node in (1, 2, 3)]
    assert unowned == list(database.observe_nodes().nodes)

    second, third = databases.node(2), databases.node(3)
    of_second, of_third = owner(second, 7), owner(third, 7)
    second.commit(of_second, 1, Change())
    third.end_session(of_third)
    again = owner(third, 8)
    found = [each._replace(silent_ms=0) for each in database.observe_nodes().nodes]
    assert [
        unowned[0],
        DescribedNode(2, 1, OwnerObservation(of_second, 1), 7, 0),
        DescribedNode(3, 2, OwnerObservation(again, 0), 8, 0),
    ] == found
    assert all(0 <= each.silent_ms < 60_000 for each in database.observe_nodes().nodes)

    second.fence(of_second, 1)
    assert DescribedNode(2, 1, None, None, 0) == database.observe_nodes().nodes[1]


def test_servers_are_seen_until_they_end(databases: Databases) -> None:
    database = create(databases)
    assert [] == servers(database)
    assert database.announce_server(broker(2), SECOND, is_draining=False)
    assert database.announce_server(broker(1), FIRST, is_draining=False)
    assert database.announce_server(broker(1), FIRST, is_draining=True)
    assert [(broker(1), True), (broker(2), False)] == servers(database)

    database.end_server(1, SECOND)
    assert [(broker(1), True), (broker(2), False)] == servers(database)
    database.end_server(1, FIRST)
    assert [(broker(2), False)] == servers(database)


def test_server_that_moves_is_seen_at_its_new_address(databases: Databases) -> None:
    database = create(databases)
    database.announce_server(broker(1), FIRST, is_draining=False)
    moved = SessionBroker(1, "a:1", "b:2", "c:3")
    assert database.announce_server(moved, FIRST, is_draining=False)
    assert [(moved, False)] == servers(database)


def test_second_process_with_the_id_of_a_live_server_is_refused(databases: Databases) -> None:
    database = create(databases)
    database.announce_server(broker(1), FIRST, is_draining=False)
    assert not database.announce_server(broker(1), SECOND, is_draining=True)
    assert [(broker(1), False)] == servers(database)
    database.end_server(1, FIRST)
    assert database.announce_server(broker(1), SECOND, is_draining=False)
    assert not database.announce_server(broker(1), FIRST, is_draining=False)


@pytest.fixture
def age(databases: Databases, request: pytest.FixtureRequest) -> "Age":
    return Age(databases, request)


class Age:
    """Lets a server have been seen some time ago."""

    def __init__(self, databases: Databases, request: pytest.FixtureRequest) -> None:
        self._databases, self._request = databases, request

    def __call__(self, server_id: int, ms: int) -> None:
        database = self._databases.cluster()
        if isinstance(database, MemoryDatabase):
            snapshot = database.snapshot()
            assert snapshot.tables is not None
            snapshot.tables.servers[server_id].seen_at_ms -= ms
            database.restore(snapshot)
            return
        server = self._request.getfixturevalue("postgres_server")
        url: str = self._request.getfixturevalue("postgres_url")
        name = url.partition("@/")[2].partition("?")[0]
        server.execute(
            f"UPDATE kledger.server SET seen_at = seen_at - {ms} * interval '1 ms' "
            f"WHERE server_id = {server_id}",
            database=name,
        )


def test_id_of_a_dead_server_may_be_used_again(databases: Databases, age: Age) -> None:
    database = create(databases)
    database.announce_server(broker(1), FIRST, is_draining=False)
    age(1, 5_000)
    assert [False] == [each.is_live for each in database.observe_nodes().servers]
    assert database.announce_server(broker(1), SECOND, is_draining=False)
    assert [(broker(1), False)] == servers(database)


def test_servers_that_are_dead_for_long_are_forgotten(databases: Databases, age: Age) -> None:
    database = create(databases)
    for server_id in (1, 2, 3):
        database.announce_server(broker(server_id), FIRST, is_draining=False)
    age(1, 25 * 3_600_000)
    age(2, 3_600_000)
    database.announce_server(broker(3), FIRST, is_draining=False)
    assert [2, 3] == [each.server.broker_id for each in database.observe_nodes().servers]

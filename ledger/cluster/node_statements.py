"""The tables in PostgreSQL that all nodes of a cluster share, and the statements on them.

Rule: each node has the tables of `postgres_statements` in its own schema. The tables here only
inform servers about each other, so these statements alone may depend on the database's clock.
Must not know: connections.

| table or view      | a row is                                                           |
|--------------------|--------------------------------------------------------------------|
| `nodes`            | how many there are, and the secret of their servers; there is one  |
| `server`           | a server that lives, or did until lately                           |
| `preferred_server` | a node that one server is to own, while that lives                 |
| `node_owner`       | a node with its owner                                              |

They are in the schema of the cluster, whose own tables have no owner then: so an older release sees
a cluster of a format that it does not know.
"""

from typing import Final

CLUSTER_SCHEMA: Final = "kledger"
_NODE_SCHEMA: Final = "kledger_node_{}"

CREATE_NODES: Final = """
CREATE TABLE nodes (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    count int NOT NULL,
    peer_secret bytea NOT NULL
);
CREATE TABLE server (
    server_id int PRIMARY KEY,
    incarnation uuid NOT NULL,
    is_draining bool NOT NULL,
    kafka text NOT NULL,
    native text NOT NULL,
    admin text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 30);
CREATE TABLE preferred_server (
    node int PRIMARY KEY,
    server_id int NOT NULL
);
"""

INSERT_NODES: Final = "INSERT INTO nodes (count, peer_secret) VALUES ($1, $2)"

NODES: Final = "SELECT count, peer_secret FROM kledger.nodes"

OBSERVE_NODES: Final = """
SELECT o.node, o.epoch, o.owner, o.seq, o.server_id, p.server_id AS preferred,
       (extract(epoch FROM clock_timestamp() - o.moved_at) * 1000)::bigint AS silent_ms
FROM node_owner o LEFT JOIN preferred_server p USING (node) ORDER BY o.node
"""

OBSERVE_SERVERS: Final = """
SELECT server_id, kafka, native, admin, is_draining,
       (extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint AS silent_ms
FROM server ORDER BY server_id
"""

ANNOUNCE_SERVER: Final = """
WITH forgotten AS (
    DELETE FROM server
    WHERE seen_at < clock_timestamp() - $8::bigint * interval '1 ms' AND server_id <> $1
)
INSERT INTO server AS s (server_id, kafka, native, admin, incarnation, is_draining)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (server_id) DO UPDATE
SET kafka = excluded.kafka, native = excluded.native, admin = excluded.admin,
    incarnation = excluded.incarnation, is_draining = excluded.is_draining,
    seen_at = clock_timestamp()
WHERE s.incarnation = excluded.incarnation
   OR s.seen_at < clock_timestamp() - $7::bigint * interval '1 ms'
RETURNING server_id
"""

PREFER_SERVER: Final = """
INSERT INTO preferred_server (node, server_id) VALUES ($1, $2)
ON CONFLICT (node) DO UPDATE SET server_id = excluded.server_id
"""

PREFER_ANY: Final = "DELETE FROM preferred_server WHERE node = $1"

END_SERVER: Final = "DELETE FROM server WHERE server_id = $1 AND incarnation = $2"


def schema_of(node: int | None) -> str:
    """Return the schema of a node; None: of the cluster."""
    return CLUSTER_SCHEMA if node is None else _NODE_SCHEMA.format(node)


def create_node_owner(count: int) -> str:
    """Return the statement that makes the view of all nodes with their owners."""
    one = """
SELECT {node} AS node, c.epoch, c.owner, t.seq, s.broker_id AS server_id, t.moved_at
FROM {schema}.cluster c
LEFT JOIN {schema}.stream t ON t.session_id = c.owner
LEFT JOIN {schema}.session s ON s.id = c.owner
"""
    all_nodes = "UNION ALL".join(
        one.format(node=node, schema=schema_of(node)) for node in range(1, count + 1)
    )
    return f"CREATE VIEW node_owner AS {all_nodes}"

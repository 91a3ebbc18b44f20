"""The tables that all nodes of a cluster share, in PostgreSQL, and every statement on them.

Rule: rows are numbered in the order of their writes, and a write takes effect only if the newest
number is the one that its writer has seen. A writer decides under a session lock, which ends with
the connection, at the latest 10 s after the process has stopped. A read is one statement, so it
sees one snapshot.
Must not know: connections, what rows mean.

| table          | a row is                                                                       |
|----------------|--------------------------------------------------------------------------------|
| `shared_state` | the newest number; deletions and writes below `forgotten` are gone; one row     |
| `shared_write` | a write: the number of its last row, and its token                             |
| `shared_row`   | a row; without a value: deleted                                                |

Ids of rows are those of `postgres_statements`.
"""

from collections.abc import Sequence
from typing import Final

from kledger.ledger.cluster.postgres_statements import KEY_PREFIX, row_id
from kledger.ledger.engine.base import Row

CHANNEL: Final = "kledger_shared"
"""Of notifications of writes; the payload is the newest number."""
LOCK_KEY: Final = 0x6B6C6564676572
"""Of the advisory lock under which rows are decided and written."""
NO_TOKEN: Final = b""
"""Of the state before the first write."""

CREATE_SHARED: Final = """
CREATE TABLE kledger.shared_state (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL DEFAULT 0,
    forgotten bigint NOT NULL DEFAULT 0,
    barriers bigint NOT NULL DEFAULT 0
);
CREATE TABLE kledger.shared_write (
    number bigint PRIMARY KEY,
    token bytea NOT NULL
);
CREATE TABLE kledger.shared_row (
    id bytea PRIMARY KEY,
    long_key bytea,
    value bytea,
    number bigint NOT NULL
);
CREATE INDEX shared_row_number ON kledger.shared_row (number);
INSERT INTO kledger.shared_state DEFAULT VALUES;
INSERT INTO kledger.shared_write (number, token) VALUES (0, '');
"""
"""For a database that has the schema `kledger`; see `SharedDatabase`."""

LOCK: Final = """
SELECT set_config('idle_session_timeout', '10s', false), pg_advisory_lock($1)
"""
"""A process that was stopped with the lock must not keep it: its session is ended by the server."""

UNLOCK: Final = """
SELECT set_config('idle_session_timeout', '0', false), pg_advisory_unlock_all()
"""

CHANGES: Final = """
SELECT m.number, m.forgotten, n.token, coalesce(s.token = $2, false) AS continues,
       coalesce(r.long_key, r.id) AS key, r.value, r.number AS row_number
FROM kledger.shared_state m
JOIN kledger.shared_write n ON n.number = m.number
LEFT JOIN kledger.shared_write s ON s.number = $1
LEFT JOIN kledger.shared_row r ON r.number > $1 AND r.number < 9223372036854775807
ORDER BY r.number
"""
"""What follows the write with that number and token; `continues`: that write is known. It is not,
if its deletions are forgotten, or if a failover has lost it. By the upper
limit the planner expects few rows, and takes the index of numbers."""

ALL: Final = """
SELECT m.number, m.forgotten, n.token, true AS continues,
       coalesce(r.long_key, r.id) AS key, r.value, r.number AS row_number
FROM kledger.shared_state m
JOIN kledger.shared_write n ON n.number = m.number
LEFT JOIN kledger.shared_row r ON r.value IS NOT NULL
ORDER BY r.number
"""

WRITE: Final = """
WITH moved AS (
    UPDATE kledger.shared_state SET number = $2 WHERE number = $1 RETURNING number
), noted AS (
    INSERT INTO kledger.shared_write (number, token) SELECT number, $3 FROM moved
), stored AS (
    INSERT INTO kledger.shared_row (id, long_key, value, number)
    SELECT u.* FROM moved, unnest($4::bytea[], $5::bytea[], $6::bytea[], $7::bigint[]) u
    ON CONFLICT (id) DO UPDATE SET value = excluded.value, number = excluded.number
)
SELECT pg_notify('kledger_shared', number::text) FROM moved
"""
"""A row if it took effect."""

SETTLE: Final = """
SELECT EXISTS (SELECT FROM kledger.shared_write WHERE number = $3 AND token = $4) AS is_written,
       EXISTS (SELECT FROM kledger.shared_write WHERE number = $1 AND token = $2) AS continues,
       number FROM kledger.shared_state
"""
"""What became of a write; asked under the lock, which its session had: so that session is gone."""

BARRIER: Final = "UPDATE kledger.shared_state SET barriers = barriers + 1"
"""A commit that waits for the standby, as the one before it may have lost its session before."""

FORGET: Final = """
WITH raised AS (
    UPDATE kledger.shared_state SET forgotten = $1 WHERE forgotten < $1 RETURNING forgotten
), deleted AS (
    DELETE FROM kledger.shared_row r USING raised
    WHERE r.value IS NULL AND r.number <= raised.forgotten
)
DELETE FROM kledger.shared_write w USING raised WHERE w.number < raised.forgotten
"""


def write_arguments(seen: int, token: bytes, rows: Sequence[Row]) -> tuple[object, ...]:
    """Return the arguments of `WRITE`: a statement changes each row once, to its last value."""
    last = {key: (value, number) for number, (key, value) in enumerate(rows, seen + 1)}
    return (
        seen,
        seen + len(rows),
        token,
        [row_id(key) for key in last],
        [key if len(key) > KEY_PREFIX else None for key in last],
        [value for value, _ in last.values()],
        [number for _, number in last.values()],
    )

"""The tables of a cluster in PostgreSQL, and every statement on them.

Rule: what must be atomic is one statement, so no connection that dies leaves a lock. Each check is
a condition on a row that the same statement changes or locks; a statement that waits for a row
checks the newest version of it, so READ COMMITTED is enough. Rows are locked in one order: streams,
then `cluster`. No statement depends on a clock; `moved_at` is only shown.
Must not know: connections.

| table     | a row is                                                                        |
|-----------|---------------------------------------------------------------------------------|
| `cluster` | the cluster; there is one                                                       |
| `session` | a session: what does not change                                                 |
| `stream`  | the state of a session and the number of its last commit; changes at each commit |
| `wal`     | a group: where its entries are, or the entries                                  |
| `row`     | a row of the store                                                              |

The index of a table takes keys of up to 2,700 bytes, so a longer key of a row is stored beside an
id: its first `KEY_PREFIX` bytes and a digest of the whole.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from kledger.ledger.cluster.database import Change, SessionId
from kledger.ledger.engine.base import Buffer, Row

KEY_PREFIX: Final = 1_000
"""Bytes of a key that decide on the order of rows."""

CREATE: Final = """
CREATE TABLE cluster (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    cluster_id text NOT NULL,
    incarnation uuid NOT NULL DEFAULT gen_random_uuid(),
    store text NOT NULL,
    format int NOT NULL,
    epoch int NOT NULL DEFAULT 0,
    owner bigint
);
CREATE TABLE session (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    broker_id int NOT NULL,
    kafka text NOT NULL,
    native text NOT NULL,
    admin text NOT NULL
);
CREATE TABLE stream (
    session_id bigint PRIMARY KEY,
    state smallint NOT NULL DEFAULT 0,
    epoch int NOT NULL DEFAULT 0,
    seq bigint NOT NULL DEFAULT 0,
    committed bigint NOT NULL DEFAULT 0,
    moved_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 30);
CREATE TABLE wal (
    epoch int NOT NULL,
    seq bigint NOT NULL,
    object text,
    "at" bigint NOT NULL,
    size bigint NOT NULL,
    footer_at bigint NOT NULL,
    inline bytea,
    PRIMARY KEY (epoch, seq),
    CHECK ((object IS NULL) <> (inline IS NULL))
);
ALTER TABLE wal ALTER inline SET STORAGE EXTERNAL;
CREATE TABLE "row" (
    id bytea PRIMARY KEY,
    long_key bytea,
    value bytea NOT NULL
) WITH (fillfactor = 80);
"""
"""`stream` has room for new versions of its rows in the same page, which need no vacuum."""

INSERT_CLUSTER: Final = """
INSERT INTO cluster (cluster_id, store, format) VALUES ($1, $2, $3)
"""

DESCRIBE: Final = """
SELECT cluster_id, incarnation::text, store, format, epoch, owner,
       current_setting('synchronous_standby_names') AS synchronous,
       current_setting('fsync') AS fsync
FROM cluster
"""

DESCRIBE_SESSIONS: Final = """
SELECT s.id, t.state, s.broker_id, s.kafka, s.native, s.admin, t.epoch, t.seq,
       (extract(epoch FROM clock_timestamp() - t.moved_at) * 1000)::bigint AS silent_ms,
       (SELECT count(*) FROM wal w WHERE w.epoch = t.epoch) AS group_count
FROM session s JOIN stream t ON t.session_id = s.id
ORDER BY s.id
"""

BEGIN_SESSION: Final = """
WITH replaced AS (
    UPDATE stream t SET state = 2 FROM session s
    WHERE s.id = t.session_id AND s.broker_id = $1 AND t.state = 0
), made AS (
    INSERT INTO session (broker_id, kafka, native, admin) VALUES ($1, $2, $3, $4)
    RETURNING id
)
INSERT INTO stream (session_id) SELECT id FROM made RETURNING session_id
"""

ACQUIRE: Final = """
WITH mine AS (
    SELECT session_id FROM stream WHERE session_id = $1 AND state = 0 FOR UPDATE
), acquired AS (
    UPDATE cluster SET owner = $1, epoch = epoch + 1 FROM mine WHERE owner IS NULL
    RETURNING epoch
)
UPDATE stream t
SET moved_at = clock_timestamp(),
    state = CASE WHEN acquired.epoch IS NULL THEN 0 ELSE 1 END,
    epoch = coalesce(acquired.epoch, 0)
FROM mine LEFT JOIN acquired ON true
WHERE t.session_id = mine.session_id
RETURNING t.state, t.epoch, t.seq
"""
"""Nothing if the session does not wait; see `CONFIRM_OWNER`."""

CONFIRM_OWNER: Final = """
UPDATE stream SET moved_at = clock_timestamp() WHERE session_id = $1 AND state = 1
RETURNING epoch, seq
"""
"""The answer waits for the synchronous standby, which then knows the owner, too."""

FORGET_SESSIONS: Final = """
WITH forgotten AS (
    DELETE FROM stream t
    WHERE state = 2 AND NOT EXISTS (SELECT FROM wal w WHERE w.epoch = t.epoch)
    RETURNING session_id
)
DELETE FROM session s USING forgotten f WHERE s.id = f.session_id
"""

STREAM: Final = "SELECT state, epoch, seq FROM stream WHERE session_id = $1"

BARRIER: Final = """
UPDATE stream SET seq = $3, moved_at = clock_timestamp()
WHERE session_id = $1 AND seq >= $2 AND seq < $3 AND state = 1
RETURNING committed
"""

OBSERVE: Final = """
SELECT c.owner, t.seq FROM cluster c
LEFT JOIN stream t ON t.session_id = c.owner
"""

FENCE: Final = """
WITH fenced AS (
    UPDATE stream SET state = 2 WHERE session_id = $1 AND seq = $2 AND state = 1
    RETURNING session_id
)
UPDATE cluster c SET owner = NULL FROM fenced f WHERE c.owner = f.session_id RETURNING 1
"""

END_SESSION: Final = """
WITH ended AS (
    UPDATE stream SET state = 2 WHERE session_id = $1 AND state <> 2 RETURNING session_id
)
UPDATE cluster c SET owner = NULL FROM ended e WHERE c.owner = e.session_id
"""

ROWS: Final = """
SELECT id, coalesce(long_key, id) AS key, value FROM "row"
WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3
"""

GROUPS: Final = """
SELECT epoch, seq, object, "at", size, footer_at, inline FROM wal
WHERE (epoch, seq) > ($1, $2) ORDER BY epoch, seq LIMIT $3
"""


_MOVED: Final = """moved AS (
    UPDATE stream SET seq = $2, committed = $2, moved_at = clock_timestamp()
    WHERE session_id = $1 AND seq = $2 - 1 AND state = 1 RETURNING epoch
)"""
_ADD_GROUP: Final = """added AS (
    INSERT INTO wal (epoch, seq, object, "at", size, footer_at, inline)
    SELECT epoch, $2, {0}::text, {1}::bigint, {2}::bigint, {3}::bigint, {4}::bytea FROM moved
)"""
_STORE_ROWS: Final = """stored AS (
    INSERT INTO "row" (id, long_key, value)
    SELECT u.* FROM moved, unnest({0}::bytea[], {1}::bytea[], {2}::bytea[]) u
    ON CONFLICT (id) DO UPDATE SET value = excluded.value
)"""
_DELETE_ROWS: Final = """deleted AS (
    DELETE FROM "row" t USING moved, unnest({0}::bytea[]) u(id) WHERE t.id = u.id
)"""
_FORGET_GROUPS: Final = """forgotten AS (
    DELETE FROM wal t USING moved, unnest({0}::int[], {1}::bigint[]) u(epoch, seq)
    WHERE t.epoch = u.epoch AND t.seq = u.seq
)"""
_RELOCATE_GROUPS: Final = """relocated AS (
    UPDATE wal t
    SET object = u.object, "at" = u.at, size = u.size, footer_at = u.footer_at, inline = u.inline
    FROM moved,
         unnest({0}::int[], {1}::bigint[], {2}::text[], {3}::bigint[], {4}::bigint[],
                {5}::bigint[], {6}::bytea[])
         u(epoch, seq, object, "at", size, footer_at, inline)
    WHERE t.epoch = u.epoch AND t.seq = u.seq
)"""


def row_id(key: Buffer) -> bytes:
    """Return the id of a row: the key, if it is not longer than `KEY_PREFIX`."""
    if len(key) <= KEY_PREFIX:
        return bytes(key)
    return bytes(key[:KEY_PREFIX]) + hashlib.sha256(key).digest()


def commit_statement(session: SessionId, seq: int, change: Change) -> tuple[str, list[object]]:
    """Return the statement of a commit and its arguments; it returns a row if it took effect.

    There are 32 texts, one for each set of parts that a change can have.
    """
    parts = [_MOVED]
    arguments: list[object] = [session, seq]

    def add(part: str, *values: object) -> None:
        """Add a part; `{0}`, `{1}` ... in it stand for its values."""
        first = len(arguments) + 1
        parts.append(part.format(*(f"${first + index}" for index in range(len(values)))))
        arguments.extend(values)

    if (wal := change.group) is not None:
        add(_ADD_GROUP, wal.object_key, wal.at, wal.size, wal.footer_at, wal.inline)
    stored, deleted = _last_values(change.rows)
    if stored:
        long_keys = [key if len(key) > KEY_PREFIX else None for key in stored]
        add(_STORE_ROWS, list(map(row_id, stored)), long_keys, list(stored.values()))
    if deleted:
        add(_DELETE_ROWS, list(map(row_id, deleted)))
    if forgotten := set(change.forgotten):
        add(_FORGET_GROUPS, *zip(*forgotten, strict=True))
    # A statement must not change a row and delete it.
    relocated = {each.group_id: each.wal for each in change.relocated}
    for group_id in forgotten & relocated.keys():
        del relocated[group_id]
    if relocated:
        relocations = [
            (*group_id, wal.object_key, wal.at, wal.size, wal.footer_at, wal.inline)
            for group_id, wal in relocated.items()
        ]
        add(_RELOCATE_GROUPS, *zip(*relocations, strict=True))
    text = f"WITH {', '.join(parts)} SELECT epoch FROM moved"  # noqa: S608 - of texts above
    return text, arguments


def _last_values(rows: Sequence[Row]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return the rows to store and the keys to delete: a statement changes each row once."""
    last = dict(rows)
    stored = {key: value for key, value in last.items() if value is not None}
    return stored, [key for key, value in last.items() if value is None]

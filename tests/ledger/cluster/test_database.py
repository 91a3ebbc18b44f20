"""The contract of a cluster's database: one suite over memory and PostgreSQL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest

from kledger.ledger.cluster.database import (
    FORMAT,
    FORMAT_OF_NODES,
    GROUPS_PER_PAGE,
    ROWS_PER_PAGE,
    AcquiredEpoch,
    Change,
    ClusterDatabase,
    ClusterExists,
    CommitsLost,
    DatabaseError,
    GroupId,
    NoCluster,
    OwnerObservation,
    SessionFenced,
    SessionId,
    SessionState,
    StoredGroup,
)
from tests.ledger.cluster.conftest import Connect, Databases
from tests.ledger.cluster.database_words import (
    EVERYTHING,
    broker,
    groups,
    in_object,
    inline,
    owner,
    put,
    rows,
)

RACES = 60


# Clusters


@pytest.mark.parametrize("node", [None, 1])
def test_database_without_a_cluster_refuses_everything_but_to_create_one(
    databases: Databases, node: int | None
) -> None:
    database = databases.cluster() if node is None else databases.node(node)
    calls: list[Callable[[], object]] = [
        database.describe,
        database.observe,
        lambda: database.begin_session(broker(1)),
        lambda: database.acquire(SessionId(1)),
        lambda: database.commit(SessionId(1), 1, Change()),
        lambda: rows(database),
    ]
    for call in calls:
        with pytest.raises(NoCluster, match="no node 1" if node else "kledger cluster init` makes"):
            call()


@pytest.mark.parametrize("nodes", [1, 3])
def test_cluster_is_created_once(databases: Databases, nodes: int) -> None:
    first, second = databases.cluster(), databases.cluster()
    first.create(cluster_id="a", store="s3://bucket", nodes=nodes)
    for again in (1, 2):
        with pytest.raises(ClusterExists):
            second.create(cluster_id="b", store="s3://other", nodes=again)

    found = second.describe()
    expected_format = FORMAT if nodes == 1 else FORMAT_OF_NODES
    assert ("a", "s3://bucket", expected_format, 0, None, [], nodes) == (
        found.cluster_id, found.store, found.format, found.epoch, found.owner, found.sessions,
        found.nodes,
    )  # fmt: skip
    assert found.incarnation == first.describe().incarnation != ""


# Sessions


def test_first_session_becomes_the_owner_and_others_wait(database: ClusterDatabase) -> None:
    first, second = database.begin_session(broker(1)), database.begin_session(broker(2))
    assert first != second
    assert database.observe() is None

    assert AcquiredEpoch(1, 0) == database.acquire(first)
    assert database.acquire(second) is None
    assert OwnerObservation(first, 0) == database.observe()


def test_acquiring_again_returns_what_the_owner_has(database: ClusterDatabase) -> None:
    """The answer to the first call may have been lost."""
    session = owner(database)
    database.commit(session, 1, Change())
    assert AcquiredEpoch(1, 1) == database.acquire(session)


def test_epochs_rise_from_owner_to_owner(database: ClusterDatabase) -> None:
    first, second = database.begin_session(broker(1)), database.begin_session(broker(2))
    database.acquire(first)
    database.end_session(first)
    assert database.observe() is None
    assert AcquiredEpoch(2, 0) == database.acquire(second)
    assert 2 == database.describe().epoch


def test_session_that_ended_is_closed_for_good(database: ClusterDatabase) -> None:
    session = owner(database)
    database.end_session(session)
    database.end_session(session)
    for call in (
        lambda: database.acquire(session),
        lambda: database.commit(session, 1, Change()),
        lambda: database.barrier(session, confirmed=0, seq=1),
    ):
        with pytest.raises(SessionFenced, match=f"session {session} is closed"):
            call()


def test_new_session_of_a_broker_replaces_its_waiting_one_alone(
    database: ClusterDatabase,
) -> None:
    owning = owner(database, 1)
    waiting, other = database.begin_session(broker(1)), database.begin_session(broker(2))
    newest = database.begin_session(broker(1))

    with pytest.raises(SessionFenced):
        database.acquire(waiting)
    assert database.acquire(newest) is None
    assert database.acquire(other) is None
    database.commit(owning, 1, Change())


def test_session_that_waits_cannot_commit(database: ClusterDatabase) -> None:
    owner(database, 1)
    waiting = database.begin_session(broker(2))
    with pytest.raises(SessionFenced, match="waits"):
        database.commit(waiting, 1, put(b"k"))
    with pytest.raises(SessionFenced, match="waits"):
        database.barrier(waiting, confirmed=0, seq=1)
    assert {} == rows(database)


def test_sessions_are_described(database: ClusterDatabase) -> None:
    session = owner(database, 1)
    waiting = database.begin_session(broker(2))
    database.commit(session, 1, Change(group=inline(b"x")))

    first, second = database.describe().sessions
    assert (session, SessionState.OPEN, broker(1), 1, 1) == first[:5]
    assert 1 == first.group_count
    assert (waiting, SessionState.WAITING, broker(2), 0, 0) == second[:5]
    assert session == database.describe().owner
    assert 0 <= first.silent_ms < 60_000


def test_closed_sessions_are_forgotten_with_their_last_group(database: ClusterDatabase) -> None:
    with_group, without = owner(database, 1), database.begin_session(broker(2))
    database.commit(with_group, 1, Change(group=inline(b"x")))
    database.end_session(with_group)
    database.acquire(without)
    database.end_session(without)
    third = owner(database, 3)
    assert [with_group, third] == [each.session for each in database.describe().sessions]

    database.commit(third, 1, Change(forgotten=[GroupId(1, 1)]))
    database.end_session(third)
    fourth = owner(database, 4)
    assert [fourth] == [each.session for each in database.describe().sessions]


def test_broker_that_begins_again_and_again_leaves_nothing(database: ClusterDatabase) -> None:
    session = owner(database, 1)
    database.commit(session, 1, Change(group=inline(b"x")))
    newest = [database.begin_session(broker(2)) for _ in range(5)][-1]
    assert [session, newest] == [each.session for each in database.describe().sessions]


# Fences


def test_silent_owner_is_fenced(database: ClusterDatabase) -> None:
    session = owner(database)
    database.commit(session, 1, put(b"k"))
    assert database.fence(session, 1)
    assert not database.fence(session, 1)
    assert database.observe() is None

    with pytest.raises(SessionFenced):
        database.commit(session, 2, put(b"late"))
    with pytest.raises(SessionFenced):
        database.barrier(session, confirmed=1, seq=3)
    assert {b"k": b"v"} == rows(database)


@pytest.mark.parametrize("seen", [0, 2, 1_000])
def test_owner_that_has_moved_is_not_fenced(database: ClusterDatabase, seen: int) -> None:
    session = owner(database)
    database.commit(session, 1, put(b"k"))
    assert not database.fence(session, seen)
    database.commit(session, 2, put(b"l"))


def test_only_an_owner_is_fenced(database: ClusterDatabase) -> None:
    session = database.begin_session(broker(1))
    assert not database.fence(session, 0)
    assert not database.fence(SessionId(4_711), 0)
    assert database.acquire(session) is not None


# Commits


def test_commit_changes_rows(database: ClusterDatabase) -> None:
    session = owner(database)
    first = Change(rows=[(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b""), (b"d", b"4")])
    database.commit(session, 1, first)
    assert {b"a": b"3", b"b": b"2", b"c": b"", b"d": b"4"} == rows(database)

    second = Change(
        rows=[(b"a", None), (b"b", None), (b"b", b"5"), (b"c", b"6"), (b"c", None), (b"e", None)]
    )
    database.commit(session, 2, second)
    assert {b"b": b"5", b"d": b"4"} == rows(database)


def test_values_of_every_kind_of_buffer_are_stored(database: ClusterDatabase) -> None:
    session = owner(database)
    data = bytes(range(256)) * 300
    database.commit(session, 1, Change(rows=[(b"k", data)], group=inline(data)))
    assert {b"k": data} == rows(database)
    assert [StoredGroup(GroupId(1, 1), inline(data))] == groups(database)


def test_long_keys_are_stored_and_deleted(database: ClusterDatabase) -> None:
    """A key may be longer than an index of PostgreSQL takes; two may have a long common prefix."""
    session = owner(database)
    keys = [b"k" * size + end for size in (999, 1_000, 1_001, 40_000) for end in (b"a", b"b")]
    database.commit(session, 1, Change(rows=[(key, key[-1:]) for key in keys]))
    database.commit(session, 2, Change(rows=[(keys[-1], b"x"), (keys[-2], None)]))

    expected = {key: key[-1:] for key in keys[:-2]} | {keys[-1]: b"x"}
    assert expected == rows(database)


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_number_of_an_old_commit_is_refused(database: ClusterDatabase, seq: int) -> None:
    session = owner(database)
    database.commit(session, 1, put(b"a"))
    database.commit(session, 2, put(b"b"))
    with pytest.raises(SessionFenced, match="another process uses the session"):
        database.commit(session, seq, put(b"c"))
    assert {b"a", b"b"} == set(rows(database))


def test_number_that_skips_a_commit_says_that_commits_are_lost(database: ClusterDatabase) -> None:
    session = owner(database)
    database.commit(session, 1, put(b"a"))
    with pytest.raises(CommitsLost, match="at commit 1, expected 2"):
        database.commit(session, 3, put(b"b"))
    with pytest.raises(CommitsLost, match="at commit 1, expected 2"):
        database.barrier(session, confirmed=2, seq=4)
    assert {b"a"} == set(rows(database))


def test_groups_are_stored_moved_and_forgotten(database: ClusterDatabase) -> None:
    session = owner(database)
    database.commit(session, 1, Change(group=in_object("wal/1")))
    database.commit(session, 2, Change(group=inline(b"two")))
    database.commit(session, 3, Change(rows=[(b"k", b"v")]))
    database.commit(session, 4, Change(group=inline(b"four")))
    moved = in_object("wal/4")._replace(at=7)
    database.commit(
        session,
        5,
        Change(
            group=in_object("wal/5"),
            forgotten=[GroupId(1, 1), GroupId(1, 4), GroupId(9, 9)],
            relocated=[
                StoredGroup(GroupId(1, 2), moved),
                StoredGroup(GroupId(1, 4), moved),
                StoredGroup(GroupId(7, 7), moved),
            ],
        ),
    )
    assert [
        StoredGroup(GroupId(1, 2), moved),
        StoredGroup(GroupId(1, 5), in_object("wal/5")),
    ] == groups(database)


def test_groups_of_all_owners_are_in_the_order_of_their_commits(
    database: ClusterDatabase,
) -> None:
    """The second owner began its session after the third one."""
    third = database.begin_session(broker(3))
    first, second = owner(database, 1), database.begin_session(broker(2))
    for epoch, session in enumerate([first, second, third], 1):
        assert epoch == (database.acquire(session) or AcquiredEpoch(0, 0)).epoch
        for seq in range(1, 4):
            database.commit(session, seq, Change(group=in_object(f"{epoch}/{seq}")))
        database.end_session(session)

    found = groups(database)
    assert [GroupId(e, s) for e in (1, 2, 3) for s in (1, 2, 3)] == [g.group_id for g in found]
    assert found[4:] == groups(database, GroupId(2, 1))
    assert found[3:] == groups(database, GroupId(1, 1_000))


def test_many_groups_come_in_pages(database: ClusterDatabase) -> None:
    session = owner(database)
    for seq in range(1, GROUPS_PER_PAGE + 3):
        database.commit(session, seq, Change(group=inline(b"%d" % seq)))
    pages = list(database.groups())
    assert [GROUPS_PER_PAGE, 2] == [len(page) for page in pages]
    assert [b"%d" % (seq + 1) for seq in range(GROUPS_PER_PAGE + 2)] == [
        group.wal.inline for page in pages for group in page
    ]


@pytest.mark.parametrize(
    "count", [ROWS_PER_PAGE, 2 * ROWS_PER_PAGE + 1, pytest.param(100_000, marks=pytest.mark.slow)]
)
def test_many_rows_come_in_pages(database: ClusterDatabase, count: int) -> None:
    session = owner(database)
    stored = {b"%08d" % number: b"%d" % number for number in range(count)}
    items = list(stored.items())
    for seq, first in enumerate(range(0, count, 10_000), 1):
        database.commit(session, seq, Change(rows=items[first : first + 10_000]))

    pages = list(database.rows(*EVERYTHING))
    assert all(0 < len(page) <= ROWS_PER_PAGE for page in pages)
    assert items == [row for page in pages for row in page]


def test_rows_of_a_range_are_found(database: ClusterDatabase) -> None:
    session = owner(database)
    keys = [b"a", b"b", b"b\0", b"b" * 3_000, b"bc", b"c"]
    database.commit(session, 1, Change(rows=[(key, b"") for key in keys]))
    found = {key for page in database.rows(b"b", b"c") for key, _ in page}
    assert set(keys[1:-1]) == found
    assert [] == list(database.rows(b"x", b"y"))


# Barriers: what a connection that died may still bring


def test_barrier_says_which_commit_was_the_last(database: ClusterDatabase) -> None:
    session = owner(database)
    assert 0 == database.barrier(session, confirmed=0, seq=2)
    database.commit(session, 3, put(b"a"))
    assert 3 == database.barrier(session, confirmed=2, seq=4)
    assert 3 == database.barrier(session, confirmed=4, seq=9)
    database.commit(session, 10, put(b"b"))


def test_statement_that_arrives_after_the_barrier_changes_nothing(
    database: ClusterDatabase,
) -> None:
    session = owner(database)
    database.commit(session, 1, put(b"a"))
    assert 1 == database.barrier(session, confirmed=1, seq=3)
    with pytest.raises(SessionFenced):
        database.commit(session, 2, put(b"late"))
    database.commit(session, 4, put(b"b"))
    with pytest.raises(SessionFenced):
        database.commit(session, 2, put(b"late"))
    assert {b"a", b"b"} == set(rows(database))


def test_barrier_that_arrives_after_the_next_one_changes_nothing(
    database: ClusterDatabase,
) -> None:
    """The first barrier had an unknown outcome, too, so the second one was above it."""
    session = owner(database)
    database.commit(session, 1, put(b"a"))
    assert 1 == database.barrier(session, confirmed=0, seq=3)
    with pytest.raises(SessionFenced):
        database.barrier(session, confirmed=0, seq=2)
    database.commit(session, 4, put(b"b"))
    with pytest.raises(SessionFenced):
        database.barrier(session, confirmed=0, seq=3)
    database.commit(session, 5, put(b"c"))


# Races, with real threads


def both(first: Callable[[], object], second: Callable[[], object]) -> list[object]:
    """Make two calls at the same time; return their results or errors."""
    start = Barrier(2)

    def run(call: Callable[[], object]) -> object:
        start.wait()
        try:
            return call()
        except DatabaseError as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, (first, second)))


def test_fence_and_commit_at_the_same_time_exclude_each_other(
    connect: Connect, database: ClusterDatabase
) -> None:
    other = connect()
    for number in range(RACES):
        session, key = owner(database, number), b"%d" % number
        database.commit(session, 1, Change())
        committed, fenced = both(
            partial(database.commit, session, 2, put(key)),
            partial(other.fence, session, 1),
        )
        if fenced is True:
            assert isinstance(committed, SessionFenced), committed
            assert key not in rows(database)
        else:
            assert (None, False) == (committed, fenced)
            assert key in rows(database)
        database.end_session(session)


def test_late_commit_and_barrier_at_the_same_time_agree(
    connect: Connect, database: ClusterDatabase
) -> None:
    other, session, seq = connect(), owner(database), 0
    for number in range(RACES):
        key = b"%d" % number
        committed, last = both(
            partial(other.commit, session, seq + 1, put(key)),
            partial(database.barrier, session, confirmed=seq, seq=seq + 2),
        )
        if committed is None:
            assert seq + 1 == last
        else:
            assert isinstance(committed, SessionFenced), committed
            assert last != seq + 1
        assert (committed is None) == (key in rows(database))
        seq += 2


def test_two_sessions_that_acquire_at_the_same_time_do_not_both_own(
    connect: Connect, database: ClusterDatabase
) -> None:
    other = connect()
    for epoch in range(1, RACES):
        first, second = database.begin_session(broker(1)), database.begin_session(broker(2))
        results = both(
            partial(database.acquire, first),
            partial(other.acquire, second),
        )
        assert sorted(map(str, results)) == sorted(map(str, [AcquiredEpoch(epoch, 0), None]))
        winner = first if results[0] is not None else second
        assert OwnerObservation(winner, 0) == database.observe()
        database.end_session(winner)


def test_session_that_is_replaced_while_it_acquires_is_not_left_as_a_closed_owner(
    connect: Connect, database: ClusterDatabase
) -> None:
    other = connect()
    for _ in range(RACES):
        session = database.begin_session(broker(1))
        acquired, newer = both(
            partial(database.acquire, session),
            lambda: other.begin_session(broker(1)),
        )
        seen = database.observe()
        if isinstance(acquired, SessionFenced):
            assert seen is None
        else:
            assert OwnerObservation(session, 0) == seen
            database.commit(session, 1, Change())
            database.end_session(session)
        assert isinstance(newer, int)
        database.end_session(SessionId(newer))

"""What the contract does not say: takeovers, fences, unknown outcomes, missing objects, garbage."""

from collections.abc import Callable

import pytest

from kledger.ledger.cluster import upkeep
from kledger.ledger.cluster.block_reader import MISSING_MS
from kledger.ledger.cluster.cluster_engine import ClusterEngine
from kledger.ledger.cluster.faulty_database import DatabaseFault
from kledger.ledger.cluster.object_writer import LATE_PUT_MS
from kledger.ledger.cluster.session_state import CURRENT_FOR_MS
from kledger.ledger.cluster.wal_gc_plan import GarbageLimits
from kledger.ledger.cluster.wal_plan import WalLimits
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import (
    EntryCorrupt,
    EntryMissing,
    LogCorrupt,
    StorageError,
    StorageWriteFailed,
    SyncFailed,
)
from tests.ledger.cluster.model_objects import ObjectFault
from tests.ledger.cluster.words import OBJECTS, ModelCluster
from tests.ledger.engine.words import entry_count, group_of, payload, store

LIMITS = {"inline": WalLimits(), "objects": OBJECTS}


@pytest.fixture(params=LIMITS)
def cluster(request: pytest.FixtureRequest) -> ModelCluster:
    return ModelCluster(limits=LIMITS[request.param], cached=False)


def once(fault: ObjectFault, request: str = "put") -> Callable[[str], ObjectFault]:
    """One fault, at the first request of a kind."""
    left = [fault]
    return lambda seen: left.pop() if seen == request and left else ObjectFault.NONE


@pytest.mark.parametrize("is_index_stored", [True, False])
def test_next_owner_has_everything(cluster: ModelCluster, is_index_stored: bool) -> None:
    engine = cluster.own()
    store(engine, *map(group_of, range(5)), CommitGroup(drops=[7]), *map(group_of, range(3)))
    store(engine, group_of(0, ledger_id=8), CommitGroup(rows=[(b"a", b"1"), (b"count", b"3")]))
    if is_index_stored:
        engine.upkeep.store_index()
    store(engine, group_of(3), group_of(4))
    engine = cluster.own()

    assert 5 == entry_count(engine)
    assert [payload(0)] == engine.read(8, 0, 9, 100)
    assert [(b"a", b"1"), (b"count", b"5")] == engine.scan(b"", b"z")
    store(engine, group_of(5))
    assert 6 == entry_count(cluster.own())


def test_fenced_owner_changes_nothing_and_ends(cluster: ModelCluster) -> None:
    old = cluster.own()
    store(old, group_of(0))
    new = cluster.own()
    with pytest.raises(SyncFailed, match="closed"):
        old.commit(group_of(1), sync=True)
    store(new, group_of(1))

    assert 1 == len(cluster.failures)
    assert not old.is_current()
    with pytest.raises(SyncFailed):
        old.commit(CommitGroup(rows=[(b"x", b"y")]), sync=False)
    for work in (old.upkeep.heartbeat, old.upkeep.step):
        with pytest.raises(SyncFailed):
            work()
    assert 2 == entry_count(new)
    assert 2 == entry_count(cluster.own())
    assert 1 == len(cluster.failures)


@pytest.mark.parametrize("fault", [f for f in DatabaseFault if f is not DatabaseFault.NONE])
def test_commit_with_an_unknown_outcome_is_there_once(
    cluster: ModelCluster, fault: DatabaseFault
) -> None:
    engine = cluster.own()
    faults = [fault]
    cluster.database_fault = lambda call: (
        faults.pop() if call == "commit" and faults else DatabaseFault.NONE
    )
    store(engine, group_of(0))
    cluster.run_late()
    store(engine, group_of(1))

    assert [] == faults
    for each in (engine, cluster.own()):
        assert 2 == entry_count(each)
    assert 2 == sum(map(len, cluster.tables.groups()))


@pytest.mark.parametrize("fault", [f for f in ObjectFault if f is not ObjectFault.NONE])
def test_failed_put_is_repeated(fault: ObjectFault) -> None:
    cluster = ModelCluster(limits=OBJECTS, cached=False)
    engine = cluster.own()
    cluster.object_fault = once(fault)
    store(engine, group_of(0))
    cluster.run_late()
    store(engine, group_of(1))
    assert 2 == entry_count(engine)
    assert 2 == entry_count(cluster.own())


def test_store_that_is_away_fails_the_group_and_nothing_else(cluster: ModelCluster) -> None:
    cluster = ModelCluster(limits=OBJECTS, cached=False)
    engine = cluster.own()
    store(engine, group_of(0))
    cluster.object_fault = lambda _request: ObjectFault.LATE
    with pytest.raises(StorageWriteFailed, match="not stored within 60000 ms: putting wal/"):
        engine.commit(group_of(1, size=99), sync=True)
    engine.upkeep.heartbeat()
    assert engine.is_current()
    cluster.object_fault = lambda _request: ObjectFault.NONE
    cluster.run_late()
    store(engine, group_of(1))
    assert 2 == entry_count(engine)
    assert 2 == entry_count(cluster.own())


def test_truncated_response_is_asked_for_again() -> None:
    """It was cached, and every read of its entries found them damaged."""
    cluster = ModelCluster(limits=OBJECTS, cached=True)
    store(cluster.own(), group_of(0))
    cluster.object_fault = once(ObjectFault.TRUNCATED, "get")
    engine = cluster.own()
    assert 0 == engine.last_entry(7)
    cluster.object_fault = once(ObjectFault.TRUNCATED, "get")
    with pytest.raises(StorageError, match="expected") as raised:
        engine.read(7, 0, 0, 100)
    assert not isinstance(raised.value, EntryCorrupt)
    assert [payload(0)] == engine.read(7, 0, 0, 100)


def test_object_that_is_found_late_is_asked_for_again() -> None:
    cluster = ModelCluster(limits=OBJECTS, cached=False)
    engine = cluster.own()
    cluster.object_fault = once(ObjectFault.HIDDEN)
    store(engine, group_of(0))
    assert [payload(0)] == engine.read(7, 0, 0, 100)
    assert 1 == entry_count(cluster.own())


def test_missing_object_is_asked_for_again_and_never_skipped() -> None:
    cluster = ModelCluster(limits=OBJECTS, cached=False)
    engine = cluster.own()
    store(engine, group_of(0))
    cluster.object_fault = once(ObjectFault.MISSING, "get")
    assert [payload(0)] == engine.read(7, 0, 0, 100)

    began_ms = cluster.bucket.now_ms
    cluster.object_fault = lambda _request: ObjectFault.MISSING
    with pytest.raises(StorageError, match="there is no object wal/") as raised:
        engine.read(7, 0, 0, 100)
    assert not isinstance(raised.value, EntryMissing)
    assert MISSING_MS <= cluster.bucket.now_ms - began_ms
    with pytest.raises(StorageError, match="cannot be read: there is no object"):
        cluster.own()


def damage(cluster: ModelCluster, at: int) -> None:
    ((key, data),) = cluster.bucket.objects.items()
    damaged = bytearray(data)
    damaged[at] ^= 1
    cluster.bucket.objects[key] = bytes(damaged)


def test_damaged_block_is_an_error_that_names_it() -> None:
    cluster = ModelCluster(limits=OBJECTS, cached=False)
    engine = cluster.own()
    store(engine, group_of(0))
    damage(cluster, 80)
    with pytest.raises(EntryCorrupt, match=r"entry 7:0: wal/.*-0, position 42: the block has"):
        engine.read(7, 0, 0, 100)


def test_damaged_footer_ends_a_takeover() -> None:
    cluster = ModelCluster(limits=OBJECTS)
    store(cluster.own(), group_of(0))
    damage(cluster, -10)
    with pytest.raises(LogCorrupt, match="checksum"):
        cluster.own()


def test_heartbeat_keeps_the_owner_current(cluster: ModelCluster) -> None:
    engine = cluster.own()
    for _ in range(5):
        cluster.bucket.now_ms += CURRENT_FOR_MS - 1
        assert engine.is_current()
        engine.upkeep.heartbeat()
    cluster.bucket.now_ms += CURRENT_FOR_MS
    assert not engine.is_current()
    engine.upkeep.heartbeat()
    assert engine.is_current()


def test_takeover_shows_that_the_owner_lives(cluster: ModelCluster) -> None:
    engine = cluster.own()
    store(engine, *map(group_of, range(5)))
    calls: list[str] = []

    def slow(call: str) -> DatabaseFault:
        calls.append(call)
        cluster.bucket.now_ms += 1500
        return DatabaseFault.NONE

    cluster.database_fault = slow
    engine = cluster.own()
    assert engine.is_current()
    assert 2 <= calls.count("commit")


def test_resident_read_makes_no_request() -> None:
    cluster = ModelCluster(limits=OBJECTS)
    engine = cluster.own()
    store(engine, group_of(0), group_of(1))
    cluster.objects.requests.clear()
    assert [payload(0), payload(1)] == engine.read_resident(7, 0, 1, 1000)
    assert [] == cluster.objects.requests

    engine = cluster.own()
    assert engine.read_resident(7, 0, 1, 1000) is None
    engine.read(7, 0, 1, 1000)
    assert [payload(0), payload(1)] == engine.read_resident(7, 0, 1, 1000)


def test_closed_engine_keeps_nothing_in_memory() -> None:
    engine = ModelCluster(limits=OBJECTS).own()
    store(engine, group_of(0))
    assert engine.cache_bytes > 0
    engine.close()
    assert 0 == engine.cache_bytes


def test_neighbouring_blocks_are_one_request() -> None:
    cluster = ModelCluster(limits=OBJECTS, cached=False)
    engine = cluster.own()
    size = 400_000
    group = CommitGroup(entries=[(7, number, payload(number, size)) for number in range(6)])
    store(engine, group)
    cluster.objects.requests.clear()
    assert [payload(n, size) for n in range(1, 6)] == engine.read(7, 1, 5, 10 * size)
    assert ["get"] == [request for request, _ in cluster.objects.requests]


def test_database_that_is_away_at_the_end_does_not_hold_up_a_close(cluster: ModelCluster) -> None:
    engine = cluster.own()
    store(engine, group_of(0))
    cluster.bucket.now_ms += CURRENT_FOR_MS
    cluster.database_fault = lambda _call: DatabaseFault.AWAY
    engine.close()
    cluster.database_fault = lambda _call: DatabaseFault.NONE
    assert 1 == entry_count(cluster.own())


def test_limit_that_the_database_refuses_is_an_error() -> None:
    with pytest.raises(ValueError, match="inline_group_bytes_max: expected at most"):
        ModelCluster(limits=WalLimits(inline_group_bytes_max=1 << 20)).own()


# Garbage


def bucket_is_referenced(cluster: ModelCluster) -> bool:
    return set(cluster.bucket.objects) == cluster.referenced()


def rest(cluster: ModelCluster, engine: ClusterEngine) -> None:
    """Let the upkeep end all its work."""
    for _ in range(20):
        cluster.bucket.now_ms += 31_000
        engine.upkeep.heartbeat()
        engine.upkeep.step()


def test_group_waits_until_its_put_may_begin_unless_it_goes_inline() -> None:
    limits = WalLimits(puts_per_second=10, inline_group_bytes_max=100)
    cluster = ModelCluster(limits=limits, passes_time=False)
    engine = cluster.own()
    assert 0 == engine.commit_delay_ms(101)
    store(engine, CommitGroup(entries=[(7, 0, bytes(101))]))
    assert 100 == engine.commit_delay_ms(101)
    assert 0 == engine.commit_delay_ms(100)
    cluster.bucket.now_ms += 40
    assert 60 == engine.commit_delay_ms(101)
    cluster.bucket.now_ms += 60
    assert 0 == engine.commit_delay_ms(101)


def test_dropped_ledgers_leave_nothing(cluster: ModelCluster) -> None:
    engine = cluster.own()
    store(engine, *map(group_of, range(20)), CommitGroup(drops=[7]))
    rest(cluster, engine)
    assert {} == cluster.bucket.objects
    assert [] == [*cluster.tables.groups()]
    assert -1 == cluster.own().last_entry(7)


def test_inline_bytes_are_collected_into_an_object() -> None:
    cluster = ModelCluster()
    engine = cluster.own()
    store(engine, group_of(0, ledger_id=8), *map(group_of, range(20)))
    assert {} == cluster.bucket.objects
    rest(cluster, engine)

    assert 1 == len(cluster.bucket.objects)
    assert bucket_is_referenced(cluster)
    assert 20 == entry_count(engine)
    engine = cluster.own()
    assert 20 == entry_count(engine)
    assert [payload(0)] == engine.read(8, 0, 9, 100)


def test_survivors_of_dead_objects_are_written_again() -> None:
    cluster = ModelCluster(limits=OBJECTS, garbage=GarbageLimits(dead_bytes_min=0, settle_ms=0))
    engine = cluster.own()
    for number in range(10):
        group = group_of(number)
        group.entries.append((8, number, payload(number, 4000)))
        store(engine, group)
    store(engine, CommitGroup(drops=[8]))
    rest(cluster, engine)

    assert 1 == len(cluster.bucket.objects)
    assert bucket_is_referenced(cluster)
    assert 10 == entry_count(engine)
    assert 10 == entry_count(cluster.own())


def test_small_blocks_are_merged() -> None:
    cluster = ModelCluster(limits=OBJECTS)
    engine = cluster.own()
    for number in range(30):
        store(engine, CommitGroup(entries=[(ledger, number, b"x") for ledger in range(3)]))
    rest(cluster, engine)
    for each in (engine, engine := cluster.own()):
        assert 3 == each._log.ask(lambda index: index.block_count)
        assert [b"x"] * 30 == each.read(2, 0, 29, 1000)
    written = engine.upkeep.rewritten_bytes
    rest(cluster, engine)
    assert written == engine.upkeep.rewritten_bytes, "what is merged is not written again"
    assert bucket_is_referenced(cluster)


def test_move_of_a_ledger_that_is_dropped_meanwhile_changes_nothing() -> None:
    cluster = ModelCluster(limits=OBJECTS)
    engine = cluster.own()
    for number in range(30):
        store(engine, CommitGroup(entries=[(7, number, payload(number))]))

    def drop(request: str) -> ObjectFault:
        if request == "put":
            cluster.object_fault = lambda _request: ObjectFault.NONE
            store(engine, CommitGroup(drops=[7]))
        return ObjectFault.NONE

    cluster.object_fault = drop
    engine.upkeep.step()
    assert -1 == engine.last_entry(7)
    engine = cluster.own()
    assert -1 == engine.last_entry(7)
    rest(cluster, engine)
    assert {} == cluster.bucket.objects


def test_late_put_of_a_fenced_owner_is_swept() -> None:
    cluster = ModelCluster(limits=OBJECTS)
    old = cluster.own()
    store(old, group_of(0))
    cluster.object_fault = once(ObjectFault.LATE)
    cluster.database_fault = lambda call: (
        DatabaseFault.LOST if call == "commit" else DatabaseFault.NONE
    )
    new = cluster.own()
    with pytest.raises(SyncFailed):
        old.commit(group_of(1), sync=True)
    cluster.database_fault = lambda _call: DatabaseFault.NONE
    cluster.run_late()
    assert not bucket_is_referenced(cluster)
    rest(cluster, new)
    assert not bucket_is_referenced(cluster), "a PUT may come late for 15 minutes"
    rest(cluster, new)
    assert bucket_is_referenced(cluster)
    assert 1 == entry_count(new)


def test_late_put_of_an_object_that_was_deleted_since_is_deleted_again() -> None:
    """The second PUT of a key was answered; the first one is stored when the object is gone."""
    cluster = ModelCluster(limits=OBJECTS)
    engine = cluster.own()
    cluster.object_fault = once(ObjectFault.LATE)
    store(engine, group_of(0), CommitGroup(drops=[7]))
    assert 1 == engine.writer.put_failures
    rest(cluster, engine)
    assert {} == cluster.bucket.objects
    cluster.run_late()
    assert 1 == len(cluster.bucket.objects)
    rest(cluster, engine)
    assert {} == cluster.bucket.objects


def test_backup_of_the_database_needs_the_objects_of_its_time(cluster: ModelCluster) -> None:
    """The steps of docs/CLUSTER.md: both are restored, and the epochs of the lost time skipped."""
    engine = cluster.own()
    store(engine, *map(group_of, range(3)), CommitGroup(rows=[(b"a", b"1")]))
    backup, versions = cluster.tables.snapshot(), dict(cluster.bucket.objects)
    store(engine, group_of(3), CommitGroup(drops=[7], rows=[(b"count", None)]))
    rest(cluster, engine)
    assert not versions.keys() & cluster.bucket.objects.keys()

    assert backup.tables is not None
    backup.tables.epoch += 1_000_000
    cluster.tables.restore(backup)
    if versions:
        with pytest.raises(StorageError, match="cannot be read: there is no object"):
            cluster.own()
    cluster.bucket.objects.update(versions)
    engine = cluster.own()
    assert 1_000_001 < engine.epoch
    assert 3 == entry_count(engine)
    store(engine, group_of(3))
    assert 4 == entry_count(cluster.own())
    assert b"1" == engine.get(b"a")


def test_second_put_of_a_slow_one_leaves_nothing() -> None:
    cluster = ModelCluster(limits=OBJECTS)
    engine = cluster.own()
    cluster.object_fault = once(ObjectFault.SLOW)
    store(engine, group_of(0))
    assert 1 == engine.writer.hedges
    assert 1000 > cluster.bucket.now_ms
    cluster.bucket.now_ms += 10_000
    cluster.objects.wait((), 1)
    assert 2 == len(cluster.bucket.objects)
    for _ in range(3):
        rest(cluster, engine)
    assert bucket_is_referenced(cluster)
    assert 1 == entry_count(engine)


def test_failed_deletion_is_repeated() -> None:
    cluster = ModelCluster(limits=OBJECTS)
    engine = cluster.own()
    store(engine, group_of(0), CommitGroup(drops=[7]))
    cluster.object_fault = once(ObjectFault.FAILED, "delete")
    engine.upkeep.store_index()
    engine.upkeep.step()
    assert 1 == len(cluster.bucket.objects)
    engine.upkeep.step()
    assert {} == cluster.bucket.objects


def test_objects_above_the_limit_of_those_to_be_deleted_are_left_to_the_next_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that refuses to delete, for want of a permission, must not fill the memory."""
    monkeypatch.setattr(upkeep, "DELETIONS_WAITING_MAX", 2)
    cluster = ModelCluster(limits=OBJECTS)
    engine = cluster.own()
    for number in range(5):
        store(engine, group_of(number))
    store(engine, CommitGroup(drops=[7]))
    cluster.object_fault = lambda request: (
        ObjectFault.FAILED if request == "delete" else ObjectFault.NONE
    )
    rest(cluster, engine)
    assert 2 == engine.upkeep.garbage_objects
    assert 5 == len(cluster.bucket.objects)

    cluster.object_fault = lambda _: ObjectFault.NONE
    engine = cluster.own()
    cluster.bucket.now_ms += LATE_PUT_MS
    rest(cluster, engine)  # what it finds is too much for it, too
    cluster.bucket.now_ms += upkeep.SWEEP_MS
    rest(cluster, engine)
    cluster.bucket.now_ms += upkeep.SWEEP_MS
    rest(cluster, engine)
    assert {} == cluster.bucket.objects

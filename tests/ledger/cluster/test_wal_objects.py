"""The object store of an engine: a folder and memory, and an S3 server where there is one."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.servers.s3_servers import VersityGateway
from kledger.ledger.cluster.wal_objects import (
    ObjectMissing,
    ObjectStoreFailed,
    StoredWalObjects,
)
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.offload.object_store import ObjectStore
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.loop_thread import LoopThread
from tests.ledger.cluster.words import EAGER, OBJECTS, ModelCluster
from tests.ledger.engine.words import entry_count, group_of, store

UNPACED = replace(OBJECTS, puts_per_second=1e6)
"""The clock of the model stands still."""
PREFIX = "wal/00000000-0000-0000-0000-000000000007/0000000001/"


@pytest.fixture(params=["file", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoredWalObjects]:
    if request.param == "s3":
        with VersityGateway(tmp_path) as server:
            server.make_bucket("cluster")
            yield from opened("s3://cluster/prefix", server.options)
    else:
        yield from opened("memory://" if request.param == "memory" else f"file://{tmp_path}", {})


def opened(url: str, options: dict[str, object]) -> Iterator[StoredWalObjects]:
    pool, loop = BlockingPool(), LoopThread("objects")
    loop.start()
    made = StoredWalObjects(ObjectStore(url, options, pool=pool), loop)
    yield made
    made.close()
    made.close()
    pool.close()


def test_object_is_read_as_stored(objects: StoredWalObjects) -> None:
    first, second = (objects.begin_put(f"{PREFIX}{n}-0", b"object %d" % n) for n in (1, 2))
    first.result()
    second.result()
    assert b"ject" == bytes(objects.begin_get(f"{PREFIX}1-0", 2, 4).result())
    with pytest.raises(ObjectStoreFailed, match="got 3 bytes, expected 99"):
        objects.begin_get(f"{PREFIX}2-0", 5, 99).result()
    assert [f"{PREFIX}1-0", f"{PREFIX}2-0"] == [*objects.list(PREFIX)]
    assert [] == [*objects.list("wal/other/")]

    objects.delete(f"{PREFIX}1-0")
    objects.delete(f"{PREFIX}1-0")
    assert [f"{PREFIX}2-0"] == [*objects.list(PREFIX)]


def test_object_that_is_not_there_is_an_error_of_its_own(objects: StoredWalObjects) -> None:
    with pytest.raises(ObjectMissing):
        objects.begin_get(f"{PREFIX}1-0", 0, 4).result()


def test_wait_ends_with_a_request_or_after_a_time(objects: StoredWalObjects) -> None:
    put = objects.begin_put(f"{PREFIX}1-0", b"x")
    while not put.done():
        objects.wait([put, Future()], 60_000)
    objects.wait((), 1)


def test_engine_leaves_nothing_that_no_group_names(objects: StoredWalObjects) -> None:
    cluster = ModelCluster(limits=UNPACED, garbage=EAGER, cached=False, made_objects=objects)
    engine = cluster.own()
    store(engine, *map(group_of, range(20)), group_of(0, ledger_id=8), CommitGroup(drops=[8]))
    engine.upkeep.store_index()
    for _ in range(5):
        cluster.bucket.now_ms += 31_000
        engine.upkeep.step()
    assert {*objects.list("wal/")} == cluster.referenced()
    assert 1 == engine.last_entry(7) - 18
    assert 1 == len(cluster.referenced())
    assert engine.get(b"count") == b"1"
    store(engine, CommitGroup(rows=[(b"count", b"20")]))
    assert 20 == entry_count(engine)
    assert 20 == entry_count(cluster.own())


@pytest.fixture
def refusing() -> Iterator[StoredWalObjects]:
    """A store at a port where nothing listens."""
    options = {"endpoint": "http://127.0.0.1:1", "allow_http": True, "max_retries": 0}
    secrets = {"access_key_id": "a", "secret_access_key": "b"}
    yield from opened("s3://no-such-bucket/x", {**options, **secrets})


@pytest.mark.parametrize(
    "work",
    [
        lambda objects: objects.begin_put(f"{PREFIX}1-0", b"x").result(),
        lambda objects: objects.begin_get(f"{PREFIX}1-0", 0, 1).result(),
        lambda objects: objects.delete(f"{PREFIX}1-0"),
        lambda objects: objects.list(PREFIX),
    ],
)
def test_store_that_is_away_is_a_failure(
    refusing: StoredWalObjects, work: Callable[[StoredWalObjects], object]
) -> None:
    with pytest.raises(ObjectStoreFailed):
        work(refusing)

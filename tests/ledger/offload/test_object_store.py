"""Objects by name: stores that need no server. Real S3 servers are in compat_tests."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kledger.ledger.errors import InvalidArgument, NonRecoverable, TierUnavailable
from kledger.ledger.offload import object_store as module
from kledger.ledger.offload.object_store import ObjectStore, StoredObject
from kledger.runtime.blocking import BlockingPool

NAME = "public/default/orders-x/0/object-1"


async def test_objects_are_stored_replaced_and_deleted(object_store: ObjectStore) -> None:
    await object_store.put(NAME, b"first")
    await object_store.put(NAME, b"second")
    assert b"second" == bytes(await object_store.get(NAME))
    assert 6 == await object_store.size(NAME)
    assert [StoredObject(NAME, 6)] == await object_store.list()
    await object_store.delete(NAME)
    await object_store.delete(NAME)
    assert [] == await object_store.list()


async def test_missing_objects_are_an_error_of_their_own(object_store: ObjectStore) -> None:
    for call in (
        object_store.get(NAME),
        object_store.size(NAME),
        object_store.get_range(NAME, 0, 5),
        object_store.get_ranges(NAME, [(0, 5)]),
    ):
        with pytest.raises(NonRecoverable, match=f"{NAME} in {object_store.url}: .*not found"):
            await call


async def test_ranges_are_parts_of_objects(object_store: ObjectStore) -> None:
    await object_store.put(NAME, b"0123456789")
    assert b"345" == bytes(await object_store.get_range(NAME, 3, 3))
    assert b"89" == bytes(await object_store.get_range(NAME, 8, 5)), "the object ends before"
    assert [b"0", b"789"] == [
        bytes(each) for each in await object_store.get_ranges(NAME, [(0, 1), (7, 3)])
    ]
    with pytest.raises(TierUnavailable):
        await object_store.get_range(NAME, 10, 1)


async def test_listing_has_what_is_below_a_prefix(object_store: ObjectStore) -> None:
    for name in ("a/2", "a/1", "a/b/3", "ab/4"):
        await object_store.put(name, b"x")
    assert ["a/1", "a/2", "a/b/3"] == [each.name for each in await object_store.list("a/")]
    assert 4 == len(await object_store.list())


@pytest.mark.parametrize("size", [0, 10, 3000, 4096, 10_000])
async def test_objects_are_uploaded_in_parts(
    object_store: ObjectStore, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without any bytes, with less than a part, with exactly one and with several."""
    monkeypatch.setattr(module, "PART_BYTES", 4096)
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with object_store.upload(NAME) as upload:
        for start in range(0, size, 700):
            await upload.write(content[start : start + 700])
        assert [] == await object_store.list(), "not there before its end"
    assert content == bytes(await object_store.get(NAME))


async def test_failed_upload_leaves_nothing(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 1000)

    async def failing() -> None:
        async with object_store.upload(NAME) as upload:
            await upload.write(bytes(5000))
            raise RuntimeError("of the source")

    with pytest.raises(RuntimeError, match="of the source"):
        await failing()
    assert [] == await object_store.list()
    assert [] == files_below(tmp_path)


async def test_cancelled_upload_leaves_nothing(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 1000)
    begun = asyncio.Event()

    async def endless() -> None:
        async with object_store.upload(NAME) as upload:
            while True:
                await upload.write(bytes(5000))
                begun.set()

    task = asyncio.ensure_future(endless())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await object_store.close()
    assert [] == await object_store.list()
    assert [] == files_below(tmp_path)


async def test_what_a_killed_upload_left_in_a_folder_is_deleted(
    tmp_path: Path, pool: BlockingPool
) -> None:
    """The library writes to `name#1` and renames it at the end; its listing has no such names."""
    store = ObjectStore(f"file://{tmp_path}/tier", pool=pool)
    folder = tmp_path / "tier" / "a" / "b"
    folder.mkdir(parents=True)
    for name in ("object-1#1", "object-1#2", "object-10#1"):
        (folder / name).touch()
    assert [] == await store.list()
    await store.delete("a/b/object-1")
    assert ["object-10#1"] == files_below(tmp_path)
    await store.delete("a/b/object-10")
    assert [] == [*(tmp_path / "tier").iterdir()], "nor are empty folders left"


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/../b", "ä", "a b", "a#1", "x" * 901]
)
async def test_other_names_are_refused(object_store: ObjectStore, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name of an object"):
        await object_store.put(name, b"")


async def test_folder_that_cannot_be_made_is_refused(tmp_path: Path, pool: BlockingPool) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match=f"object store file://{tmp_path}/file/tier: "):
        ObjectStore(f"file://{tmp_path}/file/tier", pool=pool)


async def test_full_or_broken_folder_is_unavailable(tmp_path: Path, pool: BlockingPool) -> None:
    store = ObjectStore(f"file://{tmp_path}/tier", pool=pool)
    (tmp_path / "tier" / "a").touch()
    with pytest.raises(TierUnavailable, match="writing a/b in file://"):
        await store.put("a/b", b"x")
    with pytest.raises(TierUnavailable, match="writing a/b in file://"):
        async with store.upload("a/b") as upload:
            await upload.write(b"x")


def test_option_that_the_library_refuses_is_named(pool: BlockingPool) -> None:
    with pytest.raises(InvalidArgument) as raised:
        ObjectStore("s3://bucket", {"timeout": "hidden?", "session_token": "hidden"}, pool=pool)
    assert 'failed to parse "***?" as Duration' in str(raised.value)
    assert "options given: session_token, timeout" in str(raised.value)


ANSWER_OF_A_SERVER = (
    "<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code>"
    "<Message>hidden is not allowed</Message><RequestId>1</RequestId></Error>"
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("short", "short"),
        ("", "ValueError"),
        ("a  b\nc\n\nDebug source:\nX { secret }", "a b c"),
        (
            "No privileges: Error performing GET https://host:1/a/b?sig=abc - 403: "
            + ANSWER_OF_A_SERVER,
            "Error performing GET https://host:1 - 403: AccessDenied: *** is not allowed",
        ),
        ("x" * 1000, "x" * 400),
    ],
)
async def test_messages_of_the_library_are_shortened(
    pool: BlockingPool, message: str, reason: str
) -> None:
    store = ObjectStore("s3://bucket", {"session_token": "hidden"}, pool=pool)
    with pytest.raises(TierUnavailable) as raised, store.translated("reading a/b"):
        raise ValueError(message)
    assert f"reading a/b in s3://bucket: {reason}" == str(raised.value)


# A server that accepts connections and never answers

OPTIONS = {
    "access_key_id": "the-key",
    "secret_access_key": "the-secret",
    "region": "eu",
    "allow_http": True,
    "max_retries": 0,
}


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def s3_store(server: socket.socket, pool: BlockingPool, **options: object) -> ObjectStore:
    endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
    return ObjectStore("s3://bucket", {**OPTIONS, "endpoint": endpoint, **options}, pool=pool)


async def test_silent_server_ends_with_the_timeout(
    silent_server: socket.socket, pool: BlockingPool
) -> None:
    store = s3_store(silent_server, pool, timeout="50ms")
    with pytest.raises(TierUnavailable, match="reading object-1 in s3://bucket: ") as raised:
        await store.get("object-1")
    assert "the-key" not in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_cancelled_read_ends_at_once(
    silent_server: socket.socket, pool: BlockingPool
) -> None:
    """And the connection is closed: the request is not only forgotten."""
    store = s3_store(silent_server, pool)
    read = asyncio.ensure_future(store.get_range("object-1", 0, 10))
    silent_server.setblocking(False)
    connection, _ = await asyncio.get_running_loop().sock_accept(silent_server)
    with connection:
        assert b"GET /bucket/object-1" in await asyncio.get_running_loop().sock_recv(
            connection, 999
        )
        await asyncio.sleep(0)
        assert not read.done(), "waits without blocking the loop"
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        assert b"" == await asyncio.get_running_loop().sock_recv(connection, 999)


def test_loop_that_closes_during_a_request_does_no_harm(
    silent_server: socket.socket, pool: BlockingPool
) -> None:
    """The library reports to a loop that is gone; another loop goes on with the same store."""
    store = s3_store(silent_server, pool, timeout="1s")

    async def begin() -> None:
        read = asyncio.ensure_future(store.get("object-1"))
        await asyncio.sleep(0)
        assert not read.done()
        read._log_destroy_pending = False  # type: ignore[attr-defined]  # what is tested here

    async def request_again() -> None:
        with pytest.raises(TierUnavailable):
            await store.get("object-2")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    asyncio.run(request_again())


def files_below(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("*") if each.is_file())

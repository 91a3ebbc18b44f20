"""The offloader over S3 servers of others, and what it does when they, or the network, fail.

Each fault ends with a clear error or with success after retries, never with wrong bytes, and
nothing is left in the bucket after a delete.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from compat_tests.servers.s3_servers import (
    ACCESS_KEY,
    SECRET_KEY,
    RcloneServer,
    S3Server,
    VersityGateway,
)
from kledger.ledger.errors import Corrupt, LedgerError, NonRecoverable, TierUnavailable
from kledger.ledger.offload import object_store as store_module
from kledger.ledger.offload.object_layout import data_name
from kledger.ledger.offload.object_offloader import ObjectStoreOffloader
from kledger.ledger.offload.object_store import ObjectStore
from kledger.ledger.offload.object_tiers import ObjectStoreTiers
from kledger.ledger.offload.offloader import TieredLedger
from kledger.runtime.blocking import BlockingPool
from tests.ledger.offload.object_words import FIRST, LEDGER, SECOND, ListSource, numbered
from tests.ledger.offload.s3_proxy import Answer, Fault, S3Proxy, error

MIB = 1 << 20
FEW = [bytes(each) for each in numbered(300, 1000)]
"""Less than a part."""
MANY = [bytes([number]) * (1 << 18) for number in range(95)]
"""Three parts of an upload, 24 blocks."""
_buckets = count(1)

pytestmark = pytest.mark.slow  # the servers are built with Go

SERVERS: dict[str, Callable[[Path], S3Server]] = {
    "versitygw": VersityGateway,
    "rclone": RcloneServer,
}


@pytest.fixture(scope="session", params=SERVERS)
def s3_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
async def proxy(s3_server: S3Server) -> AsyncIterator[S3Proxy]:
    async with S3Proxy(s3_server.address) as proxy:
        yield proxy


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    name = f"bucket-{next(_buckets)}"
    s3_server.make_bucket(name)
    return name


@asynccontextmanager
async def offloading(
    server: S3Server, bucket: str, proxy: S3Proxy | None = None, **options: object
) -> AsyncIterator[ObjectStoreOffloader]:
    """An offloader without caches that gives up soon, directly or through the proxy."""
    more: dict[str, object] = {"max_retries": 2, "timeout": "20s"}
    if proxy is not None:
        more["endpoint"] = f"http://{proxy.address}"
    tiers = ObjectStoreTiers({**server.options, **more, **options})
    offloader = tiers.from_url(f"s3://{bucket}/some/prefix")
    try:
        yield offloader.below("public/default/orders-x/0")
    finally:
        await tiers.close()


async def read_all(ledger: TieredLedger) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < ledger.entries:
        found += map(bytes, await ledger.read(len(found), end=ledger.entries, bytes_max=3 * MIB))
    return found


def left_in(server: S3Server, bucket: str) -> list[str]:
    """Files of a bucket, unfinished uploads included."""
    return [each for each in server.files() if each.startswith(f"{bucket}/")]


# Without faults


@pytest.mark.parametrize("entries", [FEW, MANY], ids=["few", "many"])
async def test_ledger_is_copied_read_and_deleted(
    s3_server: S3Server, bucket: str, entries: list[bytes]
) -> None:
    async with offloading(s3_server, bucket) as offloader:
        for attempt in (FIRST, SECOND):
            await offloader.offload(ListSource(entries), attempt, offloader.location)
        ledger = await offloader.open(LEDGER, FIRST, offloader.location)
        assert entries == await read_all(ledger)
        assert entries[7:8] == await ledger.read(7, end=8, bytes_max=1)
        for attempt in (FIRST, SECOND):
            await offloader.delete(LEDGER, attempt, offloader.location)
        assert [] == await offloader.stored()
    assert [] == left_in(s3_server, bucket)


async def test_manifest_is_replaced(s3_server: S3Server, bucket: str) -> None:
    async with offloading(s3_server, bucket) as offloader:
        assert None is await offloader.get_whole("manifest.json")
        for content in (b'{"version": 1}', b"{}"):
            await offloader.put_whole("manifest.json", content)
            assert content == await offloader.get_whole("manifest.json")
        await offloader.delete_whole("manifest.json")
        await offloader.delete_whole("manifest.json")
    assert [] == left_in(s3_server, bucket)


async def test_cancelled_upload_leaves_nothing(
    s3_server: S3Server, proxy: S3Proxy, bucket: str
) -> None:
    """After its first part; a part that a server still writes may stay, see decision 0029."""
    async with offloading(s3_server, bucket, proxy) as offloader:
        first_part = store_module.PART_BYTES // len(MANY[0])

        class Waiting(ListSource):
            async def read(self, first: int, *, bytes_max: int) -> list[bytes]:
                if first > first_part + 10:
                    await asyncio.Event().wait()
                return [bytes(each) for each in await super().read(first, bytes_max=bytes_max)]

        copying = asyncio.ensure_future(offloader.offload(Waiting(MANY), FIRST, offloader.location))
        async with asyncio.timeout(60):
            while proxy.answered["PUT"] < 1:  # noqa: ASYNC110 - a thread of the library sends it
                await asyncio.sleep(0)
        copying.cancel()
        await asyncio.wait([copying])
        await offloader.delete(LEDGER, FIRST, offloader.location)
    assert [] == left_in(s3_server, bucket)


KILLED = """
import asyncio, json, os, sys
from kledger.ledger import ObjectStoreTiers
from kledger.ledger.offload.object_offloader import ObjectStoreOffloader
from tests.ledger.offload.object_words import FIRST, ListSource

class Killed(ListSource):
    async def read(self, first, *, bytes_max):
        if first >= len(self.data) - 10:  # two parts are on their way, the last one is not whole
            print("reading", flush=True)
            await asyncio.Event().wait()
        return await super().read(first, bytes_max=bytes_max)

async def main():
    tiers = ObjectStoreTiers(json.loads(sys.argv[2]))
    offloader = tiers.from_url(sys.argv[1]).below("public/default/orders-x/0")
    source = Killed([bytes([number]) * (1 << 18) for number in range(95)])
    await offloader.offload(source, FIRST, offloader.location)

asyncio.run(main())
"""


async def test_upload_of_a_killed_process_is_ended(
    s3_server: S3Server, proxy: S3Proxy, bucket: str
) -> None:
    """Nothing but its id could end it, and the id died with the process."""
    options = {**s3_server.options, "endpoint": f"http://{proxy.address}"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, f"s3://{bucket}/some/prefix", json.dumps(options),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    await process.stdout.readline()
    async with asyncio.timeout(60):
        while proxy.answered["PUT"] < 1:  # noqa: ASYNC110 - the other process sends it
            await asyncio.sleep(0)
    process.kill()
    await process.wait()
    async with offloading(s3_server, bucket) as offloader:
        data = f"some/prefix/public/default/orders-x/0/{data_name(LEDGER, FIRST)}"
        assert [data] == await asyncio.to_thread(s3_server.unfinished_uploads, bucket)
        assert [data.removeprefix("some/prefix/")] == await offloader.unfinished_uploads()
        await offloader.abort_uploads(LEDGER, SECOND, offloader.location)
        assert 1 == len(await offloader.unfinished_uploads()), "that is of another attempt"
        for _ in range(2):
            await offloader.abort_uploads(LEDGER, FIRST, offloader.location)
        assert [] == await offloader.unfinished_uploads()
    assert [] == await asyncio.to_thread(s3_server.unfinished_uploads, bucket)
    assert [] == left_in(s3_server, bucket)


@pytest.mark.parametrize("status", [403, 501])
async def test_server_that_refuses_to_list_uploads_keeps_nothing_waiting(
    *,
    s3_server: S3Server,
    proxy: S3Proxy,
    bucket: str,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with offloading(s3_server, bucket, proxy) as offloader:
        for _ in range(2):
            proxy.inject(Fault("GET", answer=error(status, "NotAllowed")))
            await offloader.abort_uploads(LEDGER, FIRST, offloader.location)
    assert 2 == proxy.injected
    assert 1 == caplog.text.count("are left to a rule of the bucket")


async def test_uploads_that_cannot_be_listed_now_are_unavailable(
    s3_server: S3Server, proxy: S3Proxy, bucket: str
) -> None:
    async with offloading(s3_server, bucket, proxy) as offloader:
        proxy.inject(Fault("GET", answer=error(503, "SlowDown")))
        with pytest.raises(TierUnavailable, match="SlowDown"):
            await offloader.abort_uploads(LEDGER, FIRST, offloader.location)


async def test_objects_of_a_store(
    s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges, listings and sizes as of stores in memory and in folders."""
    pool = BlockingPool(1)
    store = ObjectStore(f"s3://{bucket}", s3_server.options, pool=pool)
    await store.put("a/object-1", b"0123456789")
    await store.put("a/object-2", b"")
    assert b"345" == bytes(await store.get_range("a/object-1", 3, 3))
    assert b"89" == bytes(await store.get_range("a/object-1", 8, 5))
    ranges = await store.get_ranges("a/object-1", [(0, 1), (7, 3)])
    assert [b"0", b"789"] == [bytes(each) for each in ranges]
    assert [("a/object-1", 10), ("a/object-2", 0)] == await store.list("a/")
    assert 10 == await store.size("a/object-1")
    with pytest.raises(NonRecoverable):
        await store.get("a/object-3")
    for name in ("a/object-1", "a/object-2", "a/object-3"):
        await store.delete(name)
    assert [] == await store.list()
    pool.close()


# Faults that pass

PASSING = {
    "500": Fault("", answer=error(500, "InternalError")),
    "503": Fault("", answer=error(503, "SlowDown", Retry_After="1")),
    "cut": Fault("", is_cut=True),
}


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "DELETE"])
async def test_fault_that_passes_is_not_noticed(
    *, s3_server: S3Server, proxy: S3Proxy, bucket: str, kind: str, method: str
) -> None:
    entries = MANY if method == "POST" else FEW
    fault = PASSING[kind]
    async with offloading(s3_server, bucket, proxy) as offloader:
        proxy.inject(Fault(method, answer=fault.answer, is_cut=fault.is_cut))
        await offloader.offload(ListSource(entries), FIRST, offloader.location)
        ledger = await offloader.open(LEDGER, FIRST, offloader.location)
        assert entries == await read_all(ledger)
        await offloader.delete(LEDGER, FIRST, offloader.location)
    assert 1 == proxy.injected
    assert [] == left_in(s3_server, bucket)


async def test_body_that_is_cut_is_read_again(
    s3_server: S3Server, proxy: S3Proxy, bucket: str
) -> None:
    """In the middle of a block."""
    async with offloading(s3_server, bucket, proxy) as offloader:
        await offloader.offload(ListSource(MANY), FIRST, offloader.location)
        ledger = await offloader.open(LEDGER, FIRST, offloader.location)
        proxy.inject(Fault("GET", change=lambda answer: answer, is_cut=True))
        assert MANY == await read_all(ledger)
        await offloader.delete(LEDGER, FIRST, offloader.location)
    assert 1 == proxy.injected


async def test_body_that_stops_is_read_again_after_the_timeout(
    s3_server: S3Server, proxy: S3Proxy, bucket: str
) -> None:
    async with offloading(s3_server, bucket, proxy, read_timeout="300ms") as offloader:
        await offloader.offload(ListSource(FEW), FIRST, offloader.location)
        ledger = await offloader.open(LEDGER, FIRST, offloader.location)
        proxy.inject(Fault("GET", change=lambda answer: answer, is_slow=True))
        assert FEW == await read_all(ledger)
        await offloader.delete(LEDGER, FIRST, offloader.location)
    assert 1 == proxy.injected


# Faults that stay

STAYING = {
    "500": (Fault("", answer=error(500, "InternalError"), times=-1), "500 .*: InternalError: inj"),
    "503": (Fault("", answer=error(503, "SlowDown", Retry_After="1"), times=-1), "SlowDown"),
    "cut": (Fault("", is_cut=True, times=-1), "error sending request"),
    "clock skew": (Fault("", answer=error(403, "RequestTimeTooSkewed"), times=-1), "TooSkewed"),
    "revoked": (Fault("", answer=error(403, "InvalidAccessKeyId"), times=-1), "InvalidAccessKey"),
}


@pytest.mark.parametrize("kind", STAYING)
@pytest.mark.parametrize("call", ["small", "large", "open", "read", "delete"])
async def test_fault_that_stays_is_said_and_harms_nothing(
    *, s3_server: S3Server, proxy: S3Proxy, bucket: str, kind: str, call: str
) -> None:
    """When it is over, the call succeeds; then nothing is left."""
    fault, message = STAYING[kind]
    entries = MANY if call == "large" else FEW
    async with offloading(s3_server, bucket, proxy, max_retries=1, retry_timeout=5) as offloader:
        location = offloader.location
        if call not in {"small", "large"}:
            await offloader.offload(ListSource(entries), FIRST, location)
        ledger = await offloader.open(LEDGER, FIRST, location) if call == "read" else None

        async def attempt() -> None:
            if ledger is not None:
                assert entries == await read_all(ledger)
            elif call == "open":
                await offloader.open(LEDGER, FIRST, location)
            elif call == "delete":
                await offloader.delete(LEDGER, FIRST, location)
            else:
                await offloader.offload(ListSource(entries), FIRST, location)

        for method in ("GET", "PUT", "POST", "DELETE"):
            proxy.inject(Fault(method, answer=fault.answer, is_cut=fault.is_cut, times=-1))
        with pytest.raises(TierUnavailable, match=message) as raised:
            await attempt()
        assert_clear(raised.value, bucket)
        proxy.heal()
        await attempt()
        await offloader.delete(LEDGER, FIRST, location)
    assert [] == left_in(s3_server, bucket)


def assert_clear(raised: LedgerError, bucket: str) -> None:
    """It says what was done where, in one line, and no secret."""
    message = str(raised)
    assert re.match(rf"(reading|writing|deleting) \S+ in s3://{bucket}/some/prefix: ", message)
    assert "\n" not in message
    assert ACCESS_KEY not in message
    assert SECRET_KEY not in message


@pytest.mark.parametrize("failing_part", [1, 2, 3])
async def test_parts_of_a_failed_upload_are_deleted(
    *,
    s3_server: S3Server,
    proxy: S3Proxy,
    bucket: str,
    failing_part: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One part at a time, so that it is known which one fails."""
    monkeypatch.setattr(store_module, "PARTS_AT_ONCE", 1)
    async with offloading(s3_server, bucket, proxy, max_retries=0) as offloader:
        proxy.inject(Fault("PUT", change=lambda answer: answer, times=failing_part - 1))
        proxy.inject(Fault("PUT", answer=error(500, "InternalError")))
        with pytest.raises(TierUnavailable):
            await offloader.offload(ListSource(MANY), FIRST, offloader.location)
        await offloader.delete(LEDGER, FIRST, offloader.location)
    assert [] == left_in(s3_server, bucket)


async def test_upload_whose_end_fails_is_deleted(
    s3_server: S3Server, proxy: S3Proxy, bucket: str
) -> None:
    """The server completes it, and the answer is lost."""
    async with offloading(s3_server, bucket, proxy, max_retries=0) as offloader:
        proxy.inject(Fault("POST", change=lambda answer: answer))  # begins the upload
        proxy.inject(Fault("POST", change=lambda _: error(500, "InternalError")))
        with pytest.raises(TierUnavailable):
            await offloader.offload(ListSource(MANY), FIRST, offloader.location)
        await offloader.delete(LEDGER, FIRST, offloader.location)
        assert [] == await offloader.stored()
    assert [] == left_in(s3_server, bucket)


# Answers that are wrong


def flipped(answer: Answer) -> Answer:
    middle = len(answer.body) // 2
    byte = bytes([answer.body[middle] ^ 1])
    body = answer.body[:middle] + byte + answer.body[middle + 1 :]
    return Answer(answer.status, answer.headers, body)


def shorter(answer: Answer) -> Answer:
    """The length is said to be what it is, so nothing but the content is wrong."""
    headers = {n: v for n, v in answer.headers.items() if n != "Content-Length"}
    return Answer(answer.status, headers, answer.body[:-10])


def of_another_range(answer: Answer) -> Answer:
    return Answer(answer.status, answer.headers, answer.body[10:] + answer.body[:10])


def with_another_content_range(answer: Answer) -> Answer:
    headers = {n: v for n, v in answer.headers.items() if n != "Content-Range"}
    return Answer(answer.status, {**headers, "Content-Range": "bytes 0-9/10"}, answer.body)


def whole_object(answer: Answer) -> Answer:
    """A server that does not know ranges."""
    headers = {n: v for n, v in answer.headers.items() if n != "Content-Range"}
    return Answer(200, headers, answer.body)


@pytest.mark.parametrize(
    "change", [flipped, shorter, of_another_range, with_another_content_range, whole_object]
)
@pytest.mark.parametrize("call", ["open", "read"])
async def test_wrong_answers_are_never_wrong_entries(
    *,
    s3_server: S3Server,
    proxy: S3Proxy,
    bucket: str,
    change: Callable[[Answer], Answer],
    call: str,
) -> None:
    async with offloading(s3_server, bucket, proxy, max_retries=0) as offloader:
        location = offloader.location
        await offloader.offload(ListSource(FEW), FIRST, location)
        ledger = await offloader.open(LEDGER, FIRST, location) if call == "read" else None
        proxy.inject(Fault("GET", change=change, times=-1))
        try:
            ledger = ledger or await offloader.open(LEDGER, FIRST, location)
            found = await read_all(ledger)
        except (Corrupt, TierUnavailable):
            found = FEW
        assert FEW == found
        assert proxy.injected
        proxy.heal()
        assert FEW == await read_all(ledger or await offloader.open(LEDGER, FIRST, location))
        await offloader.delete(LEDGER, FIRST, location)
    assert [] == left_in(s3_server, bucket)


async def test_keys_of_nobody_are_refused(s3_server: S3Server, bucket: str) -> None:
    async with offloading(s3_server, bucket, secret_access_key="wrong" * 5) as offloader:
        with pytest.raises(TierUnavailable, match="SignatureDoesNotMatch") as raised:
            await offloader.offload(ListSource(FEW), FIRST, offloader.location)
    assert "wrongwrong" not in str(raised.value)


async def test_missing_bucket_is_unavailable_for_writes(s3_server: S3Server) -> None:
    """It may be made; what was in it is lost, and nothing is left to delete."""
    async with offloading(s3_server, "no-such-bucket") as offloader:
        with pytest.raises(TierUnavailable, match="NoSuchBucket"):
            await offloader.offload(ListSource(FEW), FIRST, offloader.location)
        with pytest.raises(NonRecoverable, match="NoSuchBucket"):
            await offloader.open(LEDGER, FIRST, offloader.location)
        await offloader.delete(LEDGER, FIRST, offloader.location)


def test_three_parts_are_tested() -> None:
    assert 2 * store_module.PART_BYTES < sum(map(len, MANY)) <= 3 * store_module.PART_BYTES

"""A broker without a disk over an S3 server that fails for a while, with clients that repeat.

Each record is too large for the database, so it needs the object store.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import pytest

from compat_tests.servers.s3_servers import VersityGateway
from kledger.ledger.cluster import cluster_engine
from kledger.ledger.cluster.wal_plan import WalLimits
from tests.gateway.running import until
from tests.kledger.cluster_clients import producing, stored
from tests.kledger.cluster_words import Cluster, Running, running
from tests.ledger.offload.s3_proxy import Fault, S3Proxy, error

pytestmark = pytest.mark.slow  # the server is built with Go

RECORDS = [b"%d" % number * 100_000 for number in range(4)]
ERRORS = 2
"""With so many answers of errors, as many groups have failed."""
_buckets = count(1)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    with VersityGateway(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture
async def proxy(s3_server: VersityGateway) -> AsyncIterator[S3Proxy]:
    async with S3Proxy(s3_server.address) as proxy:
        yield proxy


@pytest.fixture
async def cluster(postgres_url: str, s3_server: VersityGateway) -> AsyncIterator[Cluster]:
    bucket = f"cluster-{next(_buckets)}"
    s3_server.make_bucket(bucket)
    made = await asyncio.to_thread(Cluster, postgres_url, f"s3://{bucket}/prefix")
    yield made
    await asyncio.to_thread(made.database.close)


@asynccontextmanager
async def running_over(
    proxy: S3Proxy, server: VersityGateway, cluster: Cluster, broker_id: int = 1
) -> AsyncIterator[Running]:
    """A broker that reaches its objects through the proxy, and leaves repeating to the engine."""
    options = {**server.options, "endpoint": f"http://{proxy.address}", "max_retries": 0}
    flags = {"offload.options": options, "server.admin": "127.0.0.1:0"}
    async with running(cluster.settings(broker_id, False, **flags)) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PUT", answer=error(503, "SlowDown"), times=3),
        Fault("PUT", is_cut=True, times=3),
        Fault("PUT", change=lambda answer: answer, is_cut=True, times=3),
        Fault("PUT", is_silent=True),
    ],
    ids=["503", "cut before", "cut after", "no answer"],
)
async def test_failed_put_is_repeated_and_producers_wait(
    proxy: S3Proxy, s3_server: VersityGateway, cluster: Cluster, fault: Fault
) -> None:
    async with running_over(proxy, s3_server, cluster) as broker:
        address = (await broker.addresses())["kafka"]
        async with producing(address) as producer:
            proxy.inject(fault)
            for number, value in enumerate(RECORDS):
                sent = await producer.send_and_wait("orders", value, partition=0)
                assert number == sent.offset
        assert 0 == fault.times
        assert RECORDS == await stored(address)
    assert 1 == cluster.database.describe().epoch


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", answer=error(404, "NoSuchKey"), times=2),
        Fault("GET", answer=error(503, "SlowDown"), times=2),
        Fault("GET", change=lambda answer: answer, is_cut=True, times=2),
    ],
    ids=["404", "503", "cut"],
)
async def test_failed_get_is_repeated_and_nothing_is_skipped(
    proxy: S3Proxy, s3_server: VersityGateway, cluster: Cluster, fault: Fault
) -> None:
    async with (
        running_over(proxy, s3_server, cluster) as broker,
        producing((await broker.addresses())["kafka"]) as producer,
    ):
        for value in RECORDS:
            await producer.send_and_wait("orders", value, partition=0)
    async with running_over(proxy, s3_server, cluster, 2) as broker:
        address = (await broker.addresses())["kafka"]
        proxy.inject(fault)
        assert RECORDS == await stored(address)
    assert 0 == fault.times


async def test_store_that_is_away_for_long_fails_records_that_producers_repeat(
    proxy: S3Proxy,
    s3_server: VersityGateway,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker still owns the cluster, and takes what fits into the database."""
    monkeypatch.setattr(cluster_engine, "WalLimits", partial(WalLimits, give_up_ms=200))
    away = Fault("PUT", answer=error(503, "SlowDown"), times=-1)
    async with running_over(proxy, s3_server, cluster) as broker:
        address = (await broker.addresses())["kafka"]
        async with producing(address) as producer:
            proxy.inject(away)
            await producer.send_and_wait("orders", b"small", partition=0)
            sending = asyncio.ensure_future(
                producer.send_and_wait("orders", RECORDS[0], partition=0)
            )
            async with asyncio.timeout(60):
                await until(lambda: caplog.text.count("KafkaStorageError") >= ERRORS)
            assert not sending.done()
            proxy.heal()
            await sending
        assert [b"small", RECORDS[0]] == await stored(address)
    assert 1 == cluster.database.describe().epoch

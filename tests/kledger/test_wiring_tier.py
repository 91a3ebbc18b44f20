"""The tier of a server: its settings, what it loads, what it remembers, and restarts."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import kledger
from kledger.cli import run
from kledger.ledger import LedgerStore
from kledger.topics.tier_url import remembered_url

SMALL = {"internal.segment.bytes": "150"}
LOADED = """
import asyncio, sys, kledger
settings = dict(each.split("=", 1) for each in sys.argv[1:])
async def main():
    async with kledger.embedded(None, settings=settings) as client:
        await client.create_topic("orders")
        print("obstore" in sys.modules)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("offload.url=ftp://host/x", "got the scheme 'ftp'"),
        ("offload.url=s3://user:secret@bucket/x", "user names, passwords and queries are options"),
        ("offload.options=secret", "offload.options: expected a table"),
        ("offload.cache_bytes=-1", "offload.cache_bytes: expected a whole number"),
        ("offload.parallel=0", "offload_parallel: expected at least 1"),
        ("managedLedgerDataReadPriority=x", "tiered-first, bookkeeper-first"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], assignment: str, message: str
) -> None:
    data = tmp_path / "data"
    words = ["--data", str(data), "--kafka", "127.0.0.1:0", "--set", assignment]
    assert 2 == run(["serve", *words])
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert "secret" not in line
    assert not data.exists()


def test_unknown_option_is_named_and_no_value_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--set", "offload.url=s3://bucket/x", "--set", "offload.options.nope=secret"]
    assert 2 == run(["serve", "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0", *words])
    (line,) = capsys.readouterr().err.splitlines()
    assert "nope unknown for s3://, expected some of: access_key_id" in line
    assert "secret_value" not in line


@pytest.mark.parametrize("has_tier", [False, True])
def test_the_library_of_object_stores_is_loaded_only_for_a_tier(
    tmp_path: Path, has_tier: bool
) -> None:
    arguments = [f"offload.url=file://{tmp_path}/tier"] if has_tier else []
    command = [sys.executable, "-P", "-c", LOADED, *arguments]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert str(has_tier) == printed.strip()


async def test_a_restart_reads_from_the_tier_and_the_disk_cache(tmp_path: Path) -> None:
    data, tier = tmp_path / "data", tmp_path / "tier"
    settings = {
        "offload.url": f"file://{tier}",
        "log.retention.check.interval.ms": 20,
        "managedLedgerOffloadThresholdInBytes": 0,
        "managedLedgerOffloadDeletionLagMs": 0,
    }
    sent = [b"%d" % number for number in range(10)]
    async with kledger.embedded(data, settings=settings) as client:
        await client.create_topic("orders", config=SMALL)
        async with await client.create_producer("orders", batching=False) as producer:
            for value in sent:
                await producer.send(value)
        await client.create_subscription("orders", "s", "earliest")
        closed = True
        while closed:  # until only the open ledger has a primary copy
            (partition,) = (await client.topic_stats("orders")).partitions
            closed = any(not one.primary_deleted for one in partition.ledgers[:-1])
            await asyncio.sleep(0)
    for restart in range(2):
        async with kledger.embedded(data, settings=settings) as client:
            reader = await client.create_reader("orders", "earliest")
            read = [(await reader.read_next(timeout_ms=60_000)).value for _ in sent]
            assert sent == read, restart
            (partition,) = (await client.topic_stats("orders")).partitions
            assert partition.reads["tier"] >= 8
    assert any((data / ".tier-cache").iterdir())
    async with LedgerStore.open(data) as store:
        assert f"file://{tier}" == remembered_url(store)


async def test_without_the_setting_copies_of_earlier_settings_are_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"offload.url": f"file://{tmp_path}/tier"}
    async with kledger.embedded(data, settings=settings) as client:
        await client.create_topic("orders", config=SMALL)
        async with await client.create_producer("orders", batching=False) as producer:
            for number in range(5):
                await producer.send(b"%d" % number)
        await client.offload("orders")
    async with kledger.embedded(data) as client:
        reader = await client.create_reader("orders", "earliest")
        assert b"0" == (await reader.read_next(timeout_ms=60_000)).value
        (partition,) = (await client.topic_stats("orders")).partitions
        assert partition.reads["tier"] > 0

"""A topic read from its tier, without a server, is what a broker served of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer

import kledger.sync
from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import refresh_checksum
from kledger.ledger.offload.object_layout import LayoutWriter, data_name, index_name
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition, OffsetRange
from kledger.spark.range_lookup import RangeLookup
from kledger.spark.range_reader import RangeReader
from kledger.spark.source_options import InvalidOption, SourceOptions, TierLocation, read_options
from kledger.spark.tier_reader import LedgerSplit, TieredLedgerInfo, TieredTopics, read_split
from kledger.spark.tier_store import TierFailed
from kledger.testing import ServerThread

TOPIC, COUNT, START_MS, WAIT_S = "orders", 400, 1_700_000_000_000, 60
FIRST = KafkaPartition(TOPIC, 0)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[TierLocation, list[Row]]:
    """A tier whose server was stopped, and all rows that its broker had served before."""
    folder = tmp_path_factory.mktemp("server")
    settings: dict[str, object] = {"offload.url": f"file://{folder}/tier"}
    with ServerThread(folder / "data", native="127.0.0.1:0", settings=settings) as server:
        with kledger.sync.connect(f"kledger://{server.native_address}") as client:
            config = {"internal.segment.bytes": "16384", "retention.ms": "-1"}
            client.create_topic(TOPIC, partitions=2, config=config)
            client.create_topic("never-offloaded")
            fill(server.kafka_address)
            client.offload(TOPIC)
            stats = client.topic_stats(TOPIC)
            ends = {
                KafkaPartition(TOPIC, index): sum(each.offloaded for each in partition.ledgers)
                for index, partition in enumerate(stats.partitions)
            }
            assert all(count >= 2 for count in ends.values()), "several ledgers are offloaded"
        rows = list(broker_rows(server.kafka_address))
    return TierLocation(f"file://{folder}/tier"), rows


def fill(servers: str) -> None:
    """Records of both partitions, all codecs, headers, and transactions of both ends."""
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer({"bootstrap.servers": servers, "compression.type": codec})
        for n in range(number * COUNT // 5, (number + 1) * COUNT // 5):
            producer.produce(
                TOPIC, b"%d" % n * 40, b"k%d" % n, n % 2, timestamp=START_MS + n * 1000,
                headers=[("n", b"%d" % n)] if n % 3 else None,
            )  # fmt: skip
        assert producer.flush(WAIT_S) == 0
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t"})
    producer.init_transactions(WAIT_S)
    for number in range(6):
        producer.begin_transaction()
        for n in range(40):
            producer.produce(TOPIC, b"%d-%d" % (number, n) * 50, partition=n % 2)
            producer.flush(WAIT_S)
        (producer.commit_transaction, producer.abort_transaction)[number % 2](WAIT_S)
    plain = Producer({"bootstrap.servers": servers})
    for n in range(200):  # so that ledgers behind the transactions are closed
        plain.produce(TOPIC, b"last" * 100, partition=n % 2)
        plain.flush(WAIT_S)


def options(**more: str) -> SourceOptions:
    return read_options({"servers": "h:1", "subscribe": TOPIC, "includeHeaders": "true", **more})


def broker_rows(servers: str) -> Iterator[Row]:
    """Read everything from the broker."""
    with KafkaClient(servers) as client:
        lookup = RangeLookup(client, options())
        ends = lookup.latest(lookup.partitions())
    for where, end in sorted(ends.items()):
        reader = RangeReader(options(servers=servers), OffsetRange(where, 0, end))
        for batch in reader.read():
            yield from batch.to_pylist()


def tier_rows(
    location: TierLocation, *, minimum: int | None = None, is_committed: bool = True,
    bounds: dict[KafkaPartition, tuple[int, int]] | None = None,
) -> list[Row]:  # fmt: skip
    """Read ranges, everything by default, from the tier."""
    topics = TieredTopics(location)
    partitions = [KafkaPartition(TOPIC, n) for n in range(topics.topics([TOPIC])[TOPIC])]
    start = topics.offsets(dict.fromkeys(partitions, EARLIEST), is_committed=True)
    end = topics.offsets(dict.fromkeys(partitions, LATEST), is_committed=True)
    wanted = bounds or {where: (start[where], end[where]) for where in partitions}
    ranges = [OffsetRange(where, *bound) for where, bound in wanted.items()]
    return [
        row
        for split in topics.splits(ranges, minimum)
        for batch in read_split(location, split, with_headers=True, is_committed=is_committed)
        for row in batch.to_pylist()
    ]


def without_positions(rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in row if name not in {"ledger_id", "entry_id"}}
            for row in rows]  # fmt: skip


def test_tier_has_a_beginning_of_what_the_broker_served(
    offloaded: tuple[TierLocation, list[Row]],
) -> None:
    location, served = offloaded
    found = tier_rows(location)
    ends = TieredTopics(location)
    count = ends.topics([TOPIC])[TOPIC]
    latest = ends.offsets(
        {KafkaPartition(TOPIC, n): LATEST for n in range(count)}, is_committed=True
    )
    expected = [row for row in served if row["offset"] < latest[FIRST._replace(
        partition=row["partition"])]]  # fmt: skip
    assert without_positions(expected) == without_positions(found)
    assert any(row["value"].startswith(b"4-") for row in found), "a committed transaction"
    assert not any(row["value"].startswith(b"1-") for row in found), "an aborted one"


def test_positions_are_those_of_native_messages(
    offloaded: tuple[TierLocation, list[Row]],
) -> None:
    location, _ = offloaded
    rows = tier_rows(location, is_committed=False)
    positions = [(row["ledger_id"], row["entry_id"], row["batch_index"]) for row in rows
                 if row["partition"] == 0]  # fmt: skip
    assert sorted(set(positions)) == positions
    assert {0} == {entry for _, entry, index in positions[:1] if index == 0}
    assert len({ledger for ledger, _, _ in positions}) >= 2


def test_uncommitted_shows_aborted_records(offloaded: tuple[TierLocation, list[Row]]) -> None:
    found = tier_rows(offloaded[0], is_committed=False)
    assert any(row["value"].startswith(b"1-") for row in found)


@pytest.mark.parametrize("minimum", [1, 5, 40])
def test_parts_of_ledgers_have_every_row_once(
    offloaded: tuple[TierLocation, list[Row]], minimum: int
) -> None:
    location, _ = offloaded
    assert tier_rows(location) == tier_rows(location, minimum=minimum)


def test_a_range_is_read(offloaded: tuple[TierLocation, list[Row]]) -> None:
    found = tier_rows(offloaded[0], bounds={FIRST: (17, 93)})
    assert list(range(17, 93)) == [row["offset"] for row in found]


def test_times_are_found(offloaded: tuple[TierLocation, list[Row]]) -> None:
    topics = TieredTopics(offloaded[0])
    topics.topics([TOPIC])
    for time, offset in ((START_MS, 0), (START_MS + 1, 1), (START_MS + 300_000, 150)):
        assert {FIRST: offset} == topics.offsets({FIRST: time}, is_committed=True)
    assert {FIRST: -1} == topics.offsets({FIRST: 1 << 50}, is_committed=True)
    behind = RangeLookup(topics, options(mode="direct", path="x", startingTimestamp=f"{1 << 50}"))
    end = topics.offsets({FIRST: LATEST}, is_committed=True)
    assert end == behind.start([FIRST], default=EARLIEST)


def test_topics_are_found_by_name_and_by_pattern(
    offloaded: tuple[TierLocation, list[Row]],
) -> None:
    topics = TieredTopics(offloaded[0])
    assert {TOPIC: 2} == topics.topics()
    with pytest.raises(InvalidOption, match=r"not in the tier at file://.*: never-offloaded, nope"):
        topics.topics(["nope", TOPIC, "never-offloaded"])


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing", "swapped"])
def test_damaged_object_fails_with_its_name(
    offloaded: tuple[TierLocation, list[Row]], tmp_path: Path, damage: str
) -> None:
    """On a copy of the tier."""
    source = Path(offloaded[0].url.removeprefix("file://"))
    for path in source.rglob("*"):
        if path.is_file():
            target = tmp_path / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    manifest = next(tmp_path.glob("public/default/orders-*/0/manifest.json"))
    ledgers = json.loads(manifest.read_text())["ledgers"]
    broken, other = (manifest.with_name(each["objects"]["data"]) for each in ledgers[:2])
    data = bytearray(broken.read_bytes())
    if damage == "cut":
        broken.write_bytes(data[:-100])
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        broken.write_bytes(data)
    elif damage == "missing":
        broken.unlink()
    else:
        broken.write_bytes(other.read_bytes())
    with pytest.raises(TierFailed, match=broken.name):
        tier_rows(TierLocation(f"file://{tmp_path}"))


def test_batch_that_was_damaged_before_it_was_offloaded_is_named(tmp_path: Path) -> None:
    """The object is whole, so only decoding finds it."""
    attempt = UUID(int=7)
    batch = build_batch([NewRecord(b"v", timestamp=START_MS)])
    batch[-3] = 0x7F  # the length of the value
    refresh_checksum(batch)
    layout = LayoutWriter(3, attempt)
    blocks = [layout.header(), *layout.add([bytes(batch)]), *layout.finish()]
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / data_name(3, attempt)).write_bytes(b"".join(map(bytes, blocks)))
    (folder / index_name(3, attempt)).write_bytes(layout.index().encode())
    ledger = TieredLedgerInfo(
        where=FIRST, folder="p", ledger_id=3, start=0, end=1, last_timestamp=START_MS,
        data=data_name(3, attempt), index=index_name(3, attempt), aborted=(),
    )  # fmt: skip
    location = TierLocation(f"file://{tmp_path}")
    with pytest.raises(TierFailed, match=f"p/{data_name(3, attempt)}: a key or a value"):
        list(read_split(location, LedgerSplit(ledger, 0, 1), with_headers=True, is_committed=True))


def test_manifest_of_another_version_is_refused(
    offloaded: tuple[TierLocation, list[Row]], tmp_path: Path
) -> None:
    folder = tmp_path / f"public/default/orders-{0:032x}/0"
    folder.mkdir(parents=True)
    for text, message in (
        ('{"version": 2}', "expected version 1, got 2"),
        ("{", "manifest.json: is no manifest"),
    ):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(TierFailed, match=message):
            TieredTopics(TierLocation(f"file://{tmp_path}")).topics([TOPIC])


@pytest.mark.parametrize(
    ("url", "storage", "message"),
    [
        ("ftp://host/x", {}, "scheme 'ftp'"),
        ("s3://bucket", {"regoin": "x"}, "regoin unknown for s3://"),
    ],
)
def test_wrong_stores_are_refused(url: str, storage: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        TieredTopics(TierLocation(url, storage))

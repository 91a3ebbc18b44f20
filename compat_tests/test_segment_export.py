"""What `kledger ledger dump` exports, read by Apache Kafka's own tools and by its broker.

A server of its own is filled, stopped, and its folder exported as Kafka's segments.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from compat_tests.conftest import SETTINGS, Tool, create_topic
from compat_tests.records import CODECS, Sample, samples
from compat_tests.servers import ApacheKafkaServer, KledgerServer
from compat_tests.test_confluent_kafka import consuming, receive, send_all

pytestmark = [
    pytest.mark.peer("kafka-java-tools"),
    pytest.mark.data_folder("exports the folder of a stopped server"),
]
DUMP_LOG_SEGMENTS = "org.apache.kafka.tools.DumpLogSegments"
TOPIC = "exported"
SEGMENT_BYTES = 60_000
RECORDS = samples(300)
SENT = [record for codec in CODECS for record in RECORDS]
_LINE = re.compile(
    r"\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r".*headerKeys: \[(.*?)\](?: key: (.*?))?(?: payload: (.*))?"
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a partition with every codec, in several segments."""
    folder = tmp_path_factory.mktemp("export")
    server = KledgerServer(folder, settings=SETTINGS)
    with server:
        size = {"internal.segment.bytes": str(SEGMENT_BYTES)}
        create_topic(server.bootstrap, TOPIC, 1, size)
        for codec in CODECS:
            send_all(server.bootstrap, TOPIC, RECORDS, compression_type=codec, batch_size=16_000)
    output = folder / "out"
    words = ["dump", f"{TOPIC}-0", "--format", "kafka", "--output", str(output)]
    kledger = Path(sys.executable).parent / "kledger"
    command = [str(kledger), "ledger", *words, "--data", str(server.data_folder)]
    subprocess.run(command, check=True, capture_output=True)
    return output / f"{TOPIC}-0"


def names(folder: Path, *suffixes: str) -> str:
    """Give the files with these endings as the tool wants them."""
    return ",".join(str(path) for path in sorted(folder.iterdir()) if path.suffix in suffixes)


@pytest.mark.feature("dump-log reads a stopped store exported as segments, every record")
def test_dump_log_segments_reads_every_record(java: Tool, exported: Path) -> None:
    assert len(list(exported.glob("*.log"))) > 2
    flags = ("--deep-iteration", "--print-data-log", "--files", names(exported, ".log"))
    printed = java(DUMP_LOG_SEGMENTS, *flags)
    assert set(CODECS) == set(re.findall(r"compresscodec: (\w+)", printed))
    assert "isvalid: false" not in printed
    lines = [line for line in printed.splitlines() if line.startswith("| offset")]
    read = [match.groups() for line in lines if (match := _LINE.fullmatch(line))]
    assert [dumped(offset, record) for offset, record in enumerate(SENT)] == read


def dumped(offset: int, record: Sample) -> tuple[str | None, ...]:
    """Give what the tool prints of a record."""
    return (
        str(offset),
        str(record.timestamp_ms),
        str(-1 if record.key is None else len(record.key)),
        str(-1 if record.value is None else len(record.value)),
        ",".join(name for name, _ in record.headers),
        None if record.key is None else record.key.decode(),
        None if record.value is None else record.value.decode(),
    )


@pytest.mark.peer("kafka-python")
@pytest.mark.feature("reads the segments of an exported store, with headers")
def test_kafka_python_reads_every_record(exported: Path) -> None:
    """The tool prints the names of headers only."""
    read: list[tuple[object, ...]] = []
    for path in sorted(exported.glob("*.log")):
        records = MemoryRecords(path.read_bytes())
        while (batch := records.next_batch()) is not None:
            assert batch.validate_crc()
            read += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == [
        (offset, record.timestamp_ms, record.key, record.value, record.headers)
        for offset, record in enumerate(SENT)
    ]


@pytest.mark.feature("dump-log is content with the indexes of an export")
def test_dump_log_segments_accepts_the_indexes(java: Tool, exported: Path) -> None:
    indexes = names(exported, ".index", ".timeindex")
    for flag in ("--verify-index-only", "--index-sanity-check"):
        printed = java(DUMP_LOG_SEGMENTS, flag, "--files", indexes)
        assert indexes.count(",") + 1 == printed.count("Dumping ")
        assert not re.search(r"mismatch|Found|non-monotonic|failed|error", printed, re.IGNORECASE)
    listed = java(DUMP_LOG_SEGMENTS, "--files", indexes)
    assert listed.count("position: ") >= len(list(exported.glob("*.log")))


@pytest.mark.slow
@pytest.mark.feature("a broker takes an export over: every record, then more, and a restart")
def test_broker_serves_an_export(exported: Path, tmp_path: Path) -> None:
    """The way back to Kafka: the folder of a new topic, its `partition.metadata` apart."""
    broker = ApacheKafkaServer(tmp_path, settings=SETTINGS)
    with broker:
        create_topic(broker.bootstrap, TOPIC, 1, {"segment.bytes": str(1 << 20)})
    target = broker.data_folder / f"{TOPIC}-0"
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in exported.iterdir():
        shutil.copy(path, target)
    with broker:
        with consuming(broker.bootstrap, TOPIC, group="first") as consumer:
            received = receive(consumer, len(SENT))
        assert [*range(len(SENT))] == [message.offset() for message in received]
        assert [(r.key, r.value, list(r.headers), r.timestamp_ms) for r in SENT] == [
            (m.key(), m.value(), m.headers() or [], m.timestamp()[1]) for m in received
        ]
        send_all(broker.bootstrap, TOPIC, RECORDS)
    with broker, consuming(broker.bootstrap, TOPIC, group="second") as consumer:
        received = receive(consumer, len(SENT) + len(RECORDS))
        assert len(SENT) + len(RECORDS) - 1 == received[-1].offset()

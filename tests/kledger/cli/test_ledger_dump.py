"""`kledger ledger dump`: what is exported of whole and of damaged managed ledgers."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.reader import iterate_batches, iterate_records
from kledger.cli.ledger_dump import ExportRequest, PositionOrOffset
from kledger.ledger import LedgerStore, Position
from kledger.ledger.inspection import StoredManagedLedger, StoredState
from kledger.topics import TopicRegistry
from kledger.topics.partition.partition_compaction import CompactionLimits
from kledger.topics.partition_name import partition_of
from tests.batches.words import NOW_MS
from tests.kledger.cli.stores import BATCHES, RECORDS, CommandResult, batch, contents, flip
from tests.topics.words import append

Capture = pytest.CaptureFixture[str]
COUNT = BATCHES * RECORDS


def offsets(result: CommandResult) -> list[int]:
    return [int(line.split()[1].removeprefix("offset=")) for line in result.out]


def positions(result: CommandResult) -> list[str]:
    return [line.split()[0] for line in result.out]


def test_text_of_a_partition(stopped: Path, capsys: Capture) -> None:
    result = CommandResult(capsys, "dump", "orders-0", "--data", stopped)
    assert (0, [], [*range(COUNT)]) == (result.code, result.err, offsets(result))
    position = positions(result)[0]
    headers = 'header:"h"[1]="1" header:"h"=null'
    assert [
        f'{position} offset=0 timestamp={NOW_MS} key[2]="k\\xff" value[8]="value 00"',
        f'{position} offset=1 timestamp={NOW_MS} key=null value[8]="value 01"',
        f'{position} offset=2 timestamp={NOW_MS} key=null value[8]="value 02" {headers}',
    ] == result.out[:3]
    assert BATCHES == len(set(positions(result)))


def test_text_of_anything_else(stopped: Path, capsys: Capture) -> None:
    result = CommandResult(capsys, "dump", "events/all", "--data", stopped)
    assert 0 == result.code
    assert ['data[10]="event', '\\"0\\"\\x0a"'] == result.out[0].split()[1:]
    assert 5 == len(result.out)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--from", "7"], [*range(7, COUNT)]),
        (["--to", "7"], [*range(8)]),
        (["--from", "4", "--to", "4"], [4]),
        (["--limit", "4"], [0, 1, 2, 3]),
        (["--from", "10", "--limit", "2"], [10, 11]),
        (["--from", "10", "--limit", "0"], []),
        (["--from", "99"], []),
    ],
)
def test_a_part_by_offsets(
    stopped: Path, capsys: Capture, words: list[str], expected: list[int]
) -> None:
    result = CommandResult(capsys, "dump", "orders-0", "--data", stopped, *words)
    assert (0, expected) == (result.code, offsets(result))


@pytest.mark.parametrize("name", ["orders-0", "events/all"])
def test_a_part_by_positions(stopped: Path, capsys: Capture, name: str) -> None:
    whole = CommandResult(capsys, "dump", name, "--data", stopped).out
    places = list(dict.fromkeys(line.split()[0] for line in whole))
    result = CommandResult(
        capsys, "dump", name, "--data", stopped, "--from", places[1], "--to", places[3]
    )
    assert [line for line in whole if line.split()[0] in places[1:4]] == result.out


def test_text_into_a_folder(stopped: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    for name, file in (("orders-0", "orders-0.txt"), ("events/all", "events_all.txt")):
        printed = CommandResult(capsys, "dump", name, "--data", stopped).out
        assert 0 == CommandResult(capsys, "dump", name, "--data", stopped, "--output", out).code
        assert printed == (out / file).read_text().splitlines()
    result = CommandResult(capsys, "dump", "orders-0", "--data", stopped, "--output", out)
    assert (2, [f"kledger: {out / 'orders-0.txt'} exists already"]) == (result.code, result.err)


def test_raw_entries(stopped: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ("dump", "events/all", "--data", stopped, "--format", "raw", "--output", tmp_path)
    assert 0 == CommandResult(capsys, *words).code
    places = positions(CommandResult(capsys, "dump", "events/all", "--data", stopped))
    files = {path.name: path.read_bytes() for path in (tmp_path / "events_all").iterdir()}
    assert {
        f"{place.replace(':', '-')}.bin": b'event "%d"\n' % number
        for number, place in enumerate(places)
    } == files
    assert 2 == CommandResult(capsys, *words).code


def segments(folder: Path) -> dict[str, list[int]]:
    """Give the offsets of the records in each log file."""
    found = {}
    for path in sorted(folder.glob("*.log")):
        batches = iterate_batches(path.read_bytes())
        found[path.stem] = [each.offset for _, data in batches for each in iterate_records(data)]
    return found


def test_kafkas_segments(stopped: Path, tmp_path: Path, capsys: Capture) -> None:
    before = contents(stopped)
    words = ("dump", "orders-0", "--data", stopped, "--format", "kafka", "--output", tmp_path)
    result = CommandResult(capsys, *words)
    assert 0 == result.code
    assert result.out[0].startswith(f"{BATCHES} entries of orders-0/")
    folder = tmp_path / "orders-0"
    assert {
        f"{start:020d}": [*range(start, start + 2 * RECORDS)] for start in (0, 6, 12)
    } == segments(folder)
    data = (folder / f"{0:020d}.log").read_bytes()
    assert bytes(batch(0)[16:]) == data[16 : len(batch(0))]
    assert {".log", ".index", ".timeindex", ""} == {path.suffix for path in folder.iterdir()}
    result = CommandResult(capsys, *words)
    assert (2, [f"kledger: {folder} is not empty"]) == (result.code, result.err)
    assert before == contents(stopped)


def test_kafkas_segments_from_an_offset_on(stopped: Path, tmp_path: Path, capsys: Capture) -> None:
    """Batches stay whole."""
    words = ("--from", 4, "--to", 6, "--format", "kafka", "--output", tmp_path)
    assert 0 == CommandResult(capsys, "dump", "orders-0", "--data", stopped, *words).code
    assert {f"{3:020d}": [*range(3, 9)]} == segments(tmp_path / "orders-0")
    assert "0\n1\n0 3\n" == (tmp_path / "orders-0" / "leader-epoch-checkpoint").read_text()


@pytest.mark.parametrize("format_", ["text", "raw", "kafka"])
def test_damaged_entry_is_left_out_and_reported(
    spoilt: Path, tmp_path: Path, capsys: Capture, format_: str
) -> None:
    flip(spoilt, b"value 10")
    out = tmp_path / "out"
    words = ("dump", "orders-0", "--data", spoilt, "--format", format_, "--output", out)
    result = CommandResult(capsys, *words)
    assert 1 == result.code
    [notice] = result.err
    assert notice.startswith("kledger: left out: ")
    assert notice.endswith("the data fails its CRC")
    if format_ == "text":
        lines = (out / "orders-0.txt").read_text().splitlines()
        assert COUNT - RECORDS == len(lines)
    elif format_ == "raw":
        assert BATCHES - 1 == len([*(out / "orders-0").iterdir()])
    else:
        found = [offset for part in segments(out / "orders-0").values() for offset in part]
        assert [*range(9), *range(12, COUNT)] == found


def test_index_and_a_log_file_lost(spoilt: Path, capsys: Capture) -> None:
    shutil.rmtree(spoilt / "index")
    result = CommandResult(capsys, "dump", "orders-0", "--data", spoilt)
    assert (0, [*range(COUNT)]) == (result.code, offsets(result))
    (spoilt / "log" / "00000001.log").rename(spoilt / "log" / "00000002.log")
    result = CommandResult(capsys, "list", "--data", spoilt)
    assert 1 == result.code
    assert ["NAME"] == [line.split()[0] for line in result.out]
    assert any("the file is missing" in line for line in result.err)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["events/all", "--format", "kafka", "--output", "x"], "events/all is no partition; "),
        (["events/all", "--from", "7"], "events/all is no partition: expected LEDGER:ENTRY, not 7"),
        (["orders-0", "--format", "kafka"], "--format kafka needs --output DIR"),
        (["orders-0", "--format", "raw"], "--format raw needs --output DIR"),
    ],
)
def test_requests_that_make_no_sense(
    stopped: Path, capsys: Capture, words: list[str], expected: str
) -> None:
    result = CommandResult(capsys, "dump", *words, "--data", stopped)
    assert (2, [], 1) == (result.code, result.out, len(result.err))
    assert result.err[0].startswith(f"kledger: {expected}")


def test_nothing_is_written_into_the_store(stopped: Path, capsys: Capture) -> None:
    for output in (stopped, stopped / "log" / "out"):
        result = CommandResult(capsys, "dump", "orders-0", "--data", stopped, "--output", output)
        assert 2 == result.code
        assert "is inside the folder of the store" in result.err[0]


def test_entries_that_are_no_batches_are_left_out(
    stopped: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A partition's name given to entries of something else."""
    words = ("--as", "events-0", "--format", "kafka", "--output", tmp_path)
    result = CommandResult(capsys, "dump", "events/all", "--data", stopped, *words)
    assert (1, 5) == (result.code, len(result.err))
    assert "the record batch is damaged: batch of 10 bytes" in result.err[0]
    assert [] == [*(tmp_path / "events-0").iterdir()]


def test_batches_under_another_name(stopped: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ("--as", "other-7", "--format", "kafka", "--output", tmp_path)
    assert 0 == CommandResult(capsys, "dump", "orders-0", "--data", stopped, *words).code
    found = [offset for part in segments(tmp_path / "other-7").values() for offset in part]
    assert [*range(COUNT)] == found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("events/all", "events_all"),
        ("..", "_.."),
        ("../../up", "_.._.._up"),
        (f"../up-0/{'0' * 32}", "_.._up-0"),
        (f"orders-0/{'0' * 32}", "orders-0"),
    ],
)
def test_name_of_a_file_stays_in_the_folder(name: str, expected: str) -> None:
    stored = StoredManagedLedger(name=name, state=StoredState.OPEN, ledgers=(), head=None)
    assert expected == ExportRequest(stored=stored, partition=partition_of(name)).file_name


def test_positions_and_offsets() -> None:
    assert PositionOrOffset(Position(5, 120), None) == PositionOrOffset.parse("5:120")
    assert PositionOrOffset(None, 120) == PositionOrOffset.parse("120")
    for text in ("", "a", "5:", "5:x", "1.5"):
        with pytest.raises(ValueError):  # noqa: PT011 - argparse makes a line of it
            PositionOrOffset.parse(text)


async def compacted_store(folder: Path) -> None:
    """Make a store whose only partition keeps 4 of 20 records; their ledgers are removed."""
    async with LedgerStore.open(folder) as store:
        registry = await TopicRegistry.open(store)
        configs = {"internal.segment.bytes": "400", "cleanup.policy": "compact"}
        topic = await registry.create("prices", partitions=1, configs=configs)
        log = await topic.open_partition(0)
        for number in range(20):
            record = NewRecord(b"%d" % number, key=b"k%d" % (number % 3))
            await append(log, build_batch([record]))
        await log.managed_ledger.roll_over()
        await log.compact(CompactionLimits())
        await append(log, build_batch([NewRecord(b"last", key=b"k9")]))
        await registry.close()


def test_what_a_compaction_kept_is_exported(tmp_path: Path, capsys: Capture) -> None:
    """Offsets that it has removed are not missing."""
    asyncio.run(compacted_store(tmp_path / "data"))
    words = ("dump", "prices-0", "--data", tmp_path / "data")
    result = CommandResult(capsys, *words)
    assert (0, [17, 18, 19, 20]) == (result.code, offsets(result))
    assert 0 == CommandResult(capsys, *words, "--format", "kafka", "--output", tmp_path).code
    assert [17, 18, 19, 20] == [
        offset for found in segments(tmp_path / "prices-0").values() for offset in found
    ]
    assert 0 == CommandResult(capsys, *words, "--from", 19).code

"""The folder that a broker keeps of a partition: names, contents, and what is never touched."""

from pathlib import Path

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import read_header
from kledger.topics.segment_export import SegmentExport


def batches(*offsets: int, leader_epoch: int = 0) -> list[bytes]:
    return [
        bytes(build_batch([NewRecord(b"x" * 39)], base_offset=each, leader_epoch=leader_epoch))
        for each in offsets
    ]


def exported(folder: Path, *offsets: int, segment_bytes: int = 1 << 30) -> dict[str, bytes]:
    with SegmentExport(folder, segment_bytes=segment_bytes) as export:
        for batch in batches(*offsets):
            export.append(batch, read_header(batch))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_one_segment(tmp_path: Path) -> None:
    files = exported(tmp_path / "orders-0", 7, 8, 12)
    assert {
        "00000000000000000007.log": b"".join(batches(7, 8, 12)),
        "00000000000000000007.index": b"",
        "00000000000000000007.timeindex": bytes.fromhex("0000000000000000 00000000"),
        "leader-epoch-checkpoint": b"0\n1\n0 7\n",
    } == files


def test_each_epoch_is_named_with_its_first_offset(tmp_path: Path) -> None:
    with SegmentExport(tmp_path, segment_bytes=1 << 30) as export:
        for batch in (*batches(7, 8), *batches(9, leader_epoch=3), *batches(12, leader_epoch=4)):
            export.append(batch, read_header(batch))
    assert "0\n3\n0 7\n3 9\n4 12\n" == (tmp_path / "leader-epoch-checkpoint").read_text()


def test_segment_ends_before_it_becomes_too_large(tmp_path: Path) -> None:
    [size] = {len(each) for each in batches(0)}
    files = exported(tmp_path, *range(5), segment_bytes=2 * size)
    logs = {name: len(data) // size for name, data in files.items() if name.endswith(".log")}
    assert {f"{offset:020d}.log": count for offset, count in ((0, 2), (2, 2), (4, 1))} == logs
    assert 3 * 3 + 1 == len(files)


def test_nothing_to_export(tmp_path: Path) -> None:
    assert {} == exported(tmp_path / "orders-0")
    assert (tmp_path / "orders-0").is_dir()


def test_folder_that_holds_something(tmp_path: Path) -> None:
    exported(tmp_path, 1)
    with pytest.raises(FileExistsError, match="is not empty"):
        SegmentExport(tmp_path, segment_bytes=100)


def test_close_may_be_repeated(tmp_path: Path) -> None:
    export = SegmentExport(tmp_path, segment_bytes=100)
    export.close()
    export.close()

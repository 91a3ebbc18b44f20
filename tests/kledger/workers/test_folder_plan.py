"""Which workers may use which folder."""

import pytest

from kledger.workers.folder_plan import FolderRecord, plan_folder
from kledger.workers.worker_plan import WorkersMistake

TWO = FolderRecord(made_with=2, workers=2, node_id=1)
GROWN = FolderRecord(made_with=2, workers=4, node_id=1)


@pytest.mark.parametrize("names", [[], ["lock"], [".nfs1", "lost+found"], [".workers.json.new"]])
def test_empty_folder_becomes_one_of_workers(names: list[str]) -> None:
    assert TWO == plan_folder("d", names, None, count=2, node_id=1)


@pytest.mark.parametrize(
    ("record", "count", "expected"), [(TWO, 2, TWO), (TWO, 4, GROWN), (GROWN, 4, GROWN)]
)
def test_workers_may_become_more(record: FolderRecord, count: int, expected: FolderRecord) -> None:
    names = ["lock", "workers.json", "worker-0", "notes.txt"]
    assert expected == plan_folder("d", names, record, count=count, node_id=1)


@pytest.mark.parametrize(
    ("names", "record", "count", "node_id", "message"),
    [
        ([], TWO, 1, 1, "server.workers: expected at least 2, as many as d has partitions for"),
        ([], GROWN, 2, 1, "server.workers: expected at least 4"),
        ([], TWO, 2, 3, "node.id: expected 1, with which d was made, got 3"),
        ([], None, 2, 2**31 - 1, "node.id: expected at most 2147483646 with 2 workers, got 2147"),
        (["lock", "log", "index"], None, 2, 1, "server.workers: d is the data folder of a server "),
        (["index"], None, 2, 1, "server.workers: d is the data folder of a server without"),
        (["lock", "x", "notes.txt"], None, 2, 1, "data folder d holds something else, such as not"),
    ],
)
def test_other_folders_are_refused(
    names: list[str], record: FolderRecord | None, count: int, node_id: int, message: str
) -> None:
    with pytest.raises(WorkersMistake) as refused:
        plan_folder("d", names, record, count=count, node_id=node_id)
    assert str(refused.value).startswith(message)


def test_record_is_read_as_it_was_written() -> None:
    assert b'{"format": 1, "made_with": 2, "workers": 4, "node_id": 1}\n' == GROWN.encode()
    assert GROWN == FolderRecord.decode(GROWN.encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"\xff", "decode"),
        (b"[]", "expected an object with format, made_with, node_id, workers"),
        (b'{"format": 1, "made_with": 2, "workers": 2}', "expected an object"),
        (TWO.encode().replace(b"2", b"true"), "expected whole numbers"),
        (TWO.encode().replace(b"2", b"-2"), "expected whole numbers"),
        (TWO.encode().replace(b'"format": 1', b'"format": 2'), "expected format 1"),
    ],
)
def test_damaged_record_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FolderRecord.decode(content)

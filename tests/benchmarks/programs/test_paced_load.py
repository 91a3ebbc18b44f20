"""Percentiles are those of a window, and count from the time at which a record was due."""

import socket
import struct

import pytest

from benchmarks.programs.paced_load import PacedLoad, Responses


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> PacedLoad:
    near, _far = socket.socketpair()
    monkeypatch.setattr("benchmarks.programs.paced_load.connect", lambda bootstrap: near)
    return PacedLoad("127.0.0.1:1", "topic", rate=100, record_bytes=10)


def test_responses_are_taken_when_they_are_complete() -> None:
    near, far = socket.socketpair()
    with near, far:
        responses = Responses(near)
        whole = struct.pack(">i3s", 3, b"one") + struct.pack(">i5s", 5, b"three")
        far.sendall(whole[:9])
        assert [b"one"] == list(responses.take())
        far.sendall(whole[9:])
        assert [b"three"] == list(responses.take())


def test_records_outside_the_window_do_not_count(load: PacedLoad) -> None:
    load.due_s = [number / 100 for number in range(300)]
    load.acknowledged_s = [due + (0.001 if 1 <= due < 2 else 9) for due in load.due_s]
    load.fetched_s = [due + 0.002 for due in load.due_s[:250]]
    found = load.percentiles((1.0, 2.0))
    assert {1.0, 2.0} == {round(each, 6) for each in found.values()}
    with pytest.raises(SystemExit, match="no record"):
        load.percentiles((4.0, 5.0))


def test_one_slow_second_is_not_the_median_second(load: PacedLoad) -> None:
    load.due_s = [number / 100 for number in range(300)]
    load.acknowledged_s = [due + (0.05 if due < 1 else 0.001) for due in load.due_s]
    load.fetched_s = load.acknowledged_s
    found = load.percentiles((0.0, 1.0), (1.0, 3.0))
    assert [1.0, 50.0, 1.0] == [
        round(found[f"produce_{name}_ms"], 6) for name in ("p50", "p99", "p99_second")
    ]

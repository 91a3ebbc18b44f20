"""What is kept of pushes, and what goes."""

import pytest

from kledger.gateway.telemetry import pushed_metrics_state
from kledger.gateway.telemetry.pushed_metrics_state import Push, PushedMetrics
from tests.gateway.telemetry_words import CLIENT, numbered


def push(number: int, data: bytes = b"data", *, expires: int = 100) -> Push:
    return Push(
        instance_id=numbered(number),
        number=0,
        client=CLIENT,
        names=("all",),
        pushed_at_ms=5,
        expires_ms=expires,
        is_last=False,
        data=data,
    )


def kept(pushed: PushedMetrics) -> list[int]:
    return [each.instance_id.int - 1_000 for each in pushed.pushes()]


def test_the_last_push_of_each_client_is_kept() -> None:
    pushed = PushedMetrics()
    for number, data in ((1, b"one"), (2, b"two"), (1, b"three")):
        pushed.put(push(number, data))
    assert [2, 1] == kept(pushed)
    assert (push(1, b"three"), None) == (pushed.get(numbered(1)), pushed.get(numbered(9)))
    assert (2, 8) == (len(pushed), pushed.size_bytes)


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    pushed = PushedMetrics(bytes_max=10)
    for number in range(3):
        pushed.put(push(number))
    assert [1, 2] == kept(pushed)
    pushed.put(push(3, b"x" * 10))
    assert ([3], 10) == (kept(pushed), pushed.size_bytes)
    pushed.put(push(4, b"x" * 11))
    assert ([], 0) == (kept(pushed), pushed.size_bytes)


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_metrics_state, "PUSHES_MAX", 2)
    pushed = PushedMetrics()
    for number in range(3):
        pushed.put(push(number))
    assert [1, 2] == kept(pushed)


def test_old_ones_expire() -> None:
    pushed = PushedMetrics()
    for number in range(3):
        pushed.put(push(number, expires=100 + number))
    pushed.expire(99)
    assert [0, 1, 2] == kept(pushed)
    pushed.expire(101)
    assert ([2], 4) == (kept(pushed), pushed.size_bytes)
    pushed.expire(500)
    assert ([], 0) == (kept(pushed), pushed.size_bytes)

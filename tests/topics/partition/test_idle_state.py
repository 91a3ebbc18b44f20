"""Rounds without a use are counted; any use begins anew."""

from kledger.topics.partition.idle_state import IdleState


def test_rounds_are_counted_from_the_last_use() -> None:
    idle = IdleState()
    assert [0, 1, 2] == [idle.end_round(0, is_awaited=False) for _ in range(3)]
    idle.is_used = True
    assert [0, 1] == [idle.end_round(0, is_awaited=False) for _ in range(2)]
    assert [0, 1] == [idle.end_round(5, is_awaited=False) for _ in range(2)], "it has grown"
    assert [0, 0] == [idle.end_round(5, is_awaited=True) for _ in range(2)]
    assert 1 == idle.end_round(5, is_awaited=False)

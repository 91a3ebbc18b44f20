"""What is alive in which file, and which files may go."""

import pytest

from ledger.engine.space_plan import LogSpace


def space_with(*kept: tuple[int, int, int]) -> LogSpace:
    space = LogSpace()
    for file, ledger_id, size in kept:
        space.ledgers_in(file)[ledger_id] = size
    return space


def test_live_bytes_add_up_per_file() -> None:
    space = space_with((1, 7, 100), (1, 8, 20), (2, 7, 5))
    assert [120, 5, 0] == [space.live_bytes(file) for file in (1, 2, 3)]
    assert {1, 2} == set(space.live_files())


def test_drop_takes_a_ledger_out_of_every_file() -> None:
    space = space_with((1, 7, 100), (1, 8, 20), (2, 7, 5))
    assert [1, 2] == space.drop(7)
    assert [20, 0] == [space.live_bytes(file) for file in (1, 2)]
    assert [] == space.drop(7)
    assert {1} == set(space.live_files())


def test_dead_files_below_the_watermark_are_removable() -> None:
    space = space_with((1, 7, 100), (3, 8, 20), (4, 7, 5))
    space.drop(7)
    assert [1, 2] == space.removable([1, 2, 3, 4, 5], before=4)
    assert [1, 2, 4] == space.removable([1, 2, 3, 4, 5], before=5)
    assert [] == space.removable([1, 2], before=1)


def test_file_with_live_bytes_is_never_forgotten() -> None:
    space = space_with((1, 7, 100))
    with pytest.raises(AssertionError):
        space.forget(1)
    space.drop(7)
    space.forget(1)
    space.forget(9)
    assert 0 == space.live_bytes(1)

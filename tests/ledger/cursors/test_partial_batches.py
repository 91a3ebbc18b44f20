"""Batches in parts keep their order through every change, and copies are independent."""

from pyroaring import BitMap

from kledger.ledger.cursors.partial_batches import PartialBatches
from tests.ledger.words import pos


def some(*texts: str) -> PartialBatches:
    batches = PartialBatches()
    for text in texts:
        batches.set(pos(text), BitMap([1]))
    return batches


def names(batches: PartialBatches) -> list[str]:
    return [str(position) for position in batches]


def test_batches_are_in_the_order_of_their_positions() -> None:
    batches = some("5:1", "3:2", "5:0", "3:2")
    assert ["3:2", "5:0", "5:1"] == names(batches)
    assert (3, (pos("5:1"),)) == (len(batches), batches.last)
    assert () == some().last


def test_what_is_left_of_a_batch_is_what_was_set_last() -> None:
    batches = some("3:2")
    batches.set(pos("3:2"), BitMap([4, 7]))
    assert BitMap([4, 7]) == batches.get(pos("3:2"))
    assert batches.get(pos("3:3")) is None


def test_one_batch_or_all_up_to_a_position_are_removed() -> None:
    batches = some("3:2", "5:0", "5:1", "8:0")
    batches.remove(pos("5:0"))
    batches.remove(pos("5:0"))
    assert ["3:2", "5:1", "8:0"] == names(batches)
    batches.remove_upto(pos("5:1"))
    assert ["8:0"] == names(batches)
    assert batches.get(pos("5:1")) is None


def test_a_copy_does_not_follow() -> None:
    batches = some("3:2", "5:0")
    copied = batches.copy()
    batches.set(pos("3:2"), BitMap([9]))
    batches.remove(pos("5:0"))
    assert ["3:2", "5:0"] == names(copied)
    assert BitMap([1]) == copied.get(pos("3:2"))


def test_the_lowest_are_dumped_and_come_back() -> None:
    batches = some("5:1", "3:2", "5:0")
    loaded = PartialBatches.load(reversed(batches.dump(2)))
    assert ["3:2", "5:0"] == names(loaded)
    assert BitMap([1]) == loaded.get(pos("5:0"))

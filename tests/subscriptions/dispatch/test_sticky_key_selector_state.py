"""Which consumer owns which key hashes."""

from collections import Counter

import pytest

from kledger.subscriptions.dispatch.sticky_key_selector_state import (
    ConsistentHashSelector,
    HashRangeSelector,
    StickyKeySelector,
    selector_for,
)
from kledger.subscriptions.entry_view import KEY_HASH_COUNT
from kledger.subscriptions.errors import ConsumerAssign, ConsumerBusy, InvalidRequest
from tests.subscriptions.dispatch.builders import consumer

SLOTS = range(1, KEY_HASH_COUNT)
Ranges = tuple[tuple[int, int], ...]


def shares(*names: str) -> ConsistentHashSelector:
    owners = ConsistentHashSelector()
    for number, name in enumerate(names):
        owners.add(number, consumer(name))
    return owners


def ranges(*each: Ranges) -> HashRangeSelector:
    owners = HashRangeSelector()
    for number, key_ranges in enumerate(each):
        owners.add(number, consumer(key_ranges=key_ranges))
    return owners


def table(owners: StickyKeySelector) -> list[int | None]:
    return [owners.owner_of(key_hash) for key_hash in SLOTS]


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_shares_cover_everything_about_evenly(count: int) -> None:
    found = Counter(table(shares(*(f"consumer-{number}" for number in range(count)))))
    assert set(range(count)) == set(found)
    fair = len(SLOTS) / count
    assert all(0.6 * fair < size < 1.5 * fair for size in found.values()), found


def test_only_key_hashes_of_the_changed_consumer_move() -> None:
    owners = shares(*"abcde")
    before = table(owners)
    owners.add(9, consumer("new"))
    after = table(owners)
    assert {9} == {new for old, new in zip(before, after, strict=True) if old != new}
    assert 0.1 * len(SLOTS) < after.count(9) < 0.25 * len(SLOTS)
    owners.remove(9)
    assert before == table(owners)
    owners.remove(2)
    assert {2} == {old for old, new in zip(before, table(owners), strict=True) if old != new}


def test_shares_depend_on_names_alone() -> None:
    """The same consumers own the same keys after a restart, in whatever order they join."""
    names = dict(enumerate("abc"))
    others = dict(enumerate("cab"))
    assert [names[each or 0] for each in table(shares(*"abc"))] == [
        others[each or 0] for each in table(shares(*"cab"))
    ]


def test_namesakes_share_too() -> None:
    found = Counter(table(shares("a", "a")))
    assert all(size > 0.3 * len(SLOTS) for size in found.values())
    assert 2 == len(found)


def test_no_consumer_owns_nothing() -> None:
    assert shares().owner_of(1) is None
    assert ranges().owner_of(1) is None


def test_ranges_are_as_they_were_named() -> None:
    owners = ranges(((0, 99), (300, 399)), ((100, 199),))
    slots = (0, 1, 99, 100, 199, 200, 299, 300, 399, 400, 65_535)
    expected = [0, 0, 0, 1, 1, None, None, 0, 0, None, None]
    assert expected == [owners.owner_of(key_hash) for key_hash in slots]
    owners.remove(0)
    assert [None, 1] == [owners.owner_of(key_hash) for key_hash in (99, 100)]
    owners.add(5, consumer(key_ranges=((0, 99), (200, 65_535))))
    assert [5, 1, 5] == [owners.owner_of(key_hash) for key_hash in (0, 100, 65_535)]


@pytest.mark.parametrize("other", [((50, 50),), ((0, 10),), ((99, 200),), ((500, 600), (40, 120))])
def test_ranges_do_not_overlap(other: Ranges) -> None:
    owners = ranges(((10, 99),))
    with pytest.raises(ConsumerAssign, match=r"overlaps 10-99 of another one"):
        owners.add(1, consumer(key_ranges=other))
    assert {0, None} == set(table(owners))


@pytest.mark.parametrize(
    "wrong", [(), ((5, 4),), ((-1, 4),), ((0, 65_536),), ((1, 5), (5, 9)), ((1, 9), (2, 3))]
)
def test_invalid_ranges_are_refused(wrong: Ranges) -> None:
    with pytest.raises(InvalidRequest, match="key range"):
        ranges(wrong)


def test_kinds_do_not_mix() -> None:
    with_ranges, without = consumer(key_ranges=((1, 2),)), consumer()
    assert isinstance(selector_for(with_ranges), HashRangeSelector)
    assert isinstance(selector_for(without), ConsistentHashSelector)
    with pytest.raises(ConsumerBusy, match="names ranges"):
        shares("a").add(1, with_ranges)
    with pytest.raises(ConsumerBusy, match="does not"):
        ranges(((1, 2),)).add(1, without)

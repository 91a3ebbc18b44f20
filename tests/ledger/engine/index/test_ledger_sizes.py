"""Sizes of many ledgers."""

import gc

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.ledger.engine.index.ledger_sizes import CHANGING_MAX, LedgerSizes

IDS = st.integers(0, 12)


class SizesAsInADict(RuleBasedStateMachine):
    """Every operation does what it does with a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes, self.expected = LedgerSizes(), dict[int, int]()

    @rule(ledger_id=IDS, size=st.integers(1, 1 << 40))
    def increase(self, ledger_id: int, size: int) -> None:
        self.sizes.increase(ledger_id, size)
        self.expected[ledger_id] = self.expected.get(ledger_id, 0) + size

    @rule(ledger_id=IDS, size=st.integers(1, 9))
    def replace(self, ledger_id: int, size: int) -> None:
        self.sizes[ledger_id] = self.expected[ledger_id] = size

    @rule(ledger_id=IDS)
    def remove(self, ledger_id: int) -> None:
        assert self.expected.pop(ledger_id, None) == self.sizes.pop(ledger_id, None)

    @rule()
    def look_at_all(self) -> None:
        assert sorted(self.expected.items()) == list(self.sizes.items())
        assert (len(self.expected), sum(self.expected.values())) == (
            len(self.sizes),
            self.sizes.total,
        )

    @invariant()
    def each_is_found(self) -> None:
        assert bool(self.expected) == bool(self.sizes)
        for ledger_id in range(13):
            assert self.expected.get(ledger_id) == self.sizes.get(ledger_id)


TestSizesAsInADict = SizesAsInADict.TestCase


def test_an_unknown_ledger_is_a_key_error() -> None:
    sizes = LedgerSizes()
    with pytest.raises(KeyError):
        sizes[7]
    with pytest.raises(KeyError):
        del sizes[7]


def test_number_of_objects_is_limited_whatever_the_number_of_ledgers() -> None:
    sizes, expected = LedgerSizes(), dict[int, int]()
    for ledger_id in range(1000, 2000):
        for _ in range(2):
            sizes.increase(ledger_id, 700)
            expected[ledger_id] = expected.get(ledger_id, 0) + 700
        assert CHANGING_MAX >= len(sizes._changing)
        assert 2 * CHANGING_MAX >= len(gc.get_referents(sizes._changing))
    assert expected == sizes

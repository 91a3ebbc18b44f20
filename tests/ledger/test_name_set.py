"""The names of all managed ledgers."""

import gc

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.ledger.name_set import BUFFERS, NameSet

# Few letters, so that names are parts of each other and come again.
NAMES = st.text("ab\0ÿ-\ud800", max_size=3)


class NamesAsInASet(RuleBasedStateMachine):
    """Every operation does what it does with a set."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.expected = NameSet(), set[str]()

    @rule(name=NAMES)
    def add(self, name: str) -> None:
        self.names.add(name)
        self.expected.add(name)

    @rule(name=NAMES)
    def discard(self, name: str) -> None:
        self.names.discard(name)
        self.expected.discard(name)

    @rule(name=NAMES)
    def ask(self, name: str) -> None:
        assert (name in self.names) == (name in self.expected)

    @invariant()
    def all_are_there_once(self) -> None:
        assert sorted(self.expected) == sorted(self.names)


TestNamesAsInASet = NamesAsInASet.TestCase


def test_names_that_share_a_buffer() -> None:
    everything = [f"orders-{number}/{number:032x}" for number in range(4 * BUFFERS)]
    names = NameSet(everything)
    assert sorted(everything) == sorted(names)
    for name in everything[::2]:
        names.discard(name)
    assert set(everything[1::2]) == set(names)
    assert [False, True] * (2 * BUFFERS) == [name in names for name in everything]


def test_no_object_is_kept_for_a_name() -> None:
    names = NameSet()
    buffers = {id(buffer) for buffer in gc.get_referents(names._buffers)}
    for number in range(1000):
        names.add(f"orders-{number}")
    assert buffers == {id(buffer) for buffer in gc.get_referents(names._buffers)}

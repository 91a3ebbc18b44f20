"""Open, ending and aborted transactions of a partition."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.topics.partition.transaction_state import (
    AbortedIndex,
    AbortedTransaction,
    TransactionState,
)


def index(*rows: tuple[int, int, int, int]) -> AbortedIndex:
    found = AbortedIndex()
    for row in rows:
        found.add(AbortedTransaction(*row))
    return found


def test_oldest_open_transaction_holds_back_the_stable_offset() -> None:
    state = TransactionState()
    assert 10 == state.stable_offset(10)
    assert 3 == state.begin(7, 3)
    assert 3 == state.begin(7, 5), "its first batch counts"
    state.begin(8, 4)
    assert 3 == state.stable_offset(10)
    assert 2 == state.stable_offset(2), "nothing is stable that is not durable"
    state.end(7, 10, is_commit=True)
    assert 3 == state.stable_offset(10), "its marker is not durable yet"
    assert state.confirm(11) is None
    assert 4 == state.stable_offset(11)


def test_aborted_transaction_is_returned_when_its_marker_is_durable() -> None:
    state = TransactionState()
    state.begin(7, 3)
    state.begin(8, 4)
    state.end(7, 6, is_commit=False)
    assert state.confirm(6) is None
    aborted = AbortedTransaction(7, 3, 6, 4)
    assert aborted == state.confirm(7)
    assert [(7, 3)] == state.aborted.overlapping(0, 7)


def test_what_failed_is_undone_newest_first() -> None:
    state = TransactionState()
    state.begin(7, 3)
    state.end(7, 4, is_commit=False)
    state.begin(7, 5)
    assert 3 == state.stable_offset(10)
    state.undo(7, 5)
    state.undo(7, 4)
    assert [(7, 3)] == list(state.open())
    state.undo(7, 3)
    assert not state.is_open(7)
    assert 10 == state.stable_offset(10)


def test_marker_without_a_transaction_means_nothing() -> None:
    state = TransactionState()
    state.end(7, 0, is_commit=False)
    assert state.confirm(1) is None
    assert 0 == len(state.aborted)


def test_row_119_every_transaction_that_overlaps_is_found() -> None:
    found = index((7, 0, 4, 2), (8, 2, 9, 6), (7, 6, 12, 13))
    assert [(7, 0), (8, 2), (7, 6)] == found.overlapping(0, 20)
    assert [(7, 0)] == found.overlapping(0, 2)
    assert [(7, 0), (8, 2)] == found.overlapping(4, 6), "begins at a marker"
    assert [(8, 2)] == found.overlapping(5, 6)
    assert [(7, 6)] == found.overlapping(12, 13)
    assert [] == found.overlapping(13, 20)


def test_what_ends_before_the_log_start_is_forgotten() -> None:
    found = index((7, 0, 4, 5), (8, 2, 9, 10))
    assert 0 == found.remove_before(4)
    assert 1 == found.remove_before(5)
    assert [(8, 2)] == found.overlapping(0, 20)


def test_the_same_one_twice_counts_once() -> None:
    assert 1 == len(index((7, 0, 4, 5), (7, 0, 4, 5)))


class TransactionMachine(RuleBasedStateMachine):
    """Against a list of everything that was appended, durable up to a point."""

    def __init__(self) -> None:
        super().__init__()
        self.state = TransactionState()
        self.log: list[tuple[int, str]] = []
        self.durable = 0

    @rule(producer=st.integers(1, 3))
    def write(self, producer: int) -> None:
        self.state.begin(producer, len(self.log))
        self.log.append((producer, "data"))

    @rule(producer=st.integers(1, 3), kind=st.sampled_from(["commit", "abort"]))
    def mark(self, producer: int, kind: str) -> None:
        self.state.end(producer, len(self.log), is_commit=kind == "commit")
        self.log.append((producer, kind))

    @precondition(lambda self: self.durable < len(self.log))
    @rule()
    def confirm(self) -> None:
        self.durable += 1
        self.state.confirm(self.durable)

    @precondition(lambda self: self.durable < len(self.log))
    @rule(count=st.integers(1, 3))
    def fail(self, count: int) -> None:
        for _ in range(min(count, len(self.log) - self.durable)):
            producer, _ = self.log.pop()
            self.state.undo(producer, len(self.log))

    def aborted(self, upto: int) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """Return the open ones, and (producer, first, marker) of the aborted ones."""
        running: dict[int, int] = {}
        over = []
        for offset, (producer, kind) in enumerate(self.log[:upto]):
            if kind == "data":
                running.setdefault(producer, offset)
            else:
                first = running.pop(producer, None)
                if first is not None and kind == "abort":
                    over.append((producer, first, offset))
        return running, over

    @invariant()
    def stable_offset_is_that_of_the_list(self) -> None:
        running, over = self.aborted(self.durable)
        assert min([*running.values(), self.durable]) == self.state.stable_offset(self.durable)
        assert len(over) == len(self.state.aborted)

    @rule(start=st.integers(0, 30), size=st.integers(1, 10))
    def look(self, start: int, size: int) -> None:
        _, over = self.aborted(self.durable)
        end = start + size
        expected = [(who, first) for who, first, last in over if last >= start and first < end]
        assert expected == self.state.aborted.overlapping(start, end)
        between = [each[:3] for each in self.state.aborted.between(start, end)]
        assert between == [each for each in over if each[2] >= start and each[1] < end]

    @invariant()
    def open_ones_are_those_of_the_list(self) -> None:
        assert self.aborted(len(self.log))[0] == dict(self.state.open())


TestTransactionMachine = TransactionMachine.TestCase

"""The rules of a table view, without a reader."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.ledger import EARLIEST, Position
from kledger.native.client.table_view_state import Refresh, TableViewState
from kledger.native.message import Message, MessageEntry


def pos(text: str) -> Position:
    return Position.parse(text)


def message(key: bytes, value: bytes | None) -> Message:
    return Message(
        MessageEntry("orders", 0, pos("3:1"), 1), 0, key=key, value=value, headers=(),
        publish_timestamp=0, event_timestamp=None, offset=0,
    )  # fmt: skip


def test_records_in_bulk_are_applied_as_one_by_one() -> None:
    records = [(b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"a", b"4"), (b"b", b""), (b"c", None)]
    bulk, single = (TableViewState(keeps_messages=False) for _ in range(2))
    bulk.apply_all(records)
    for key, value in records:
        if key is not None:
            single.apply(key, value)
    assert {b"a": b"4"} == bulk.values == single.values


def test_kept_messages_hold_the_values_of_the_table_and_remember_what_was_removed() -> None:
    state = TableViewState(keeps_messages=True)
    first, second = message(b"a", b"1" * 100), message(b"b", b"2")
    state.apply_message(b"a", first)
    state.apply_message(b"b", second)
    state.apply_message(b"b", message(b"b", b""))
    assert {b"a": first, b"b": None} == state.messages
    assert state.values[b"a"] is first.value, "not kept twice"
    assert {b"a"} == state.values.keys()


def test_refresh_is_done_when_every_partition_was_read() -> None:
    state = TableViewState(keeps_messages=False)
    refresh = state.begin_refresh([pos("3:5"), EARLIEST, pos("4:0")])
    assert 2 == refresh.unread
    assert [] == state.read_upto(0, pos("3:4"))
    assert [] == state.read_upto(2, pos("5:0"))
    assert [] == state.read_upto(1, pos("9:9"))
    assert [refresh] == state.read_upto(0, pos("3:5"))
    assert refresh.is_done


def test_refresh_that_has_nothing_to_wait_for_is_done_at_once() -> None:
    state = TableViewState(keeps_messages=False)
    state.read_upto(0, pos("3:5"))
    assert state.begin_refresh([pos("3:5")]).is_done
    assert state.begin_refresh([]).is_done
    assert not state.begin_refresh([pos("3:6")]).is_done


def test_position_never_goes_back() -> None:
    state = TableViewState(keeps_messages=False)
    state.read_upto(0, pos("3:5"))
    state.read_upto(0, pos("3:2"))
    assert state.begin_refresh([pos("3:5")]).is_done


PARTITIONS = 3


class RefreshMachine(RuleBasedStateMachine):
    """Any order of reads and refreshes, compared with plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.state = TableViewState(keeps_messages=False)
        self.positions = [EARLIEST] * PARTITIONS
        self.waiting: dict[Refresh, list[Position]] = {}

    def has_reached(self, ends: list[Position]) -> bool:
        return all(end <= position for end, position in zip(ends, self.positions, strict=False))

    @rule(ends=st.lists(st.integers(0, 20), min_size=1, max_size=PARTITIONS))
    def refresh(self, ends: list[int]) -> None:
        wanted = [Position(1, end) for end in ends]
        refresh = self.state.begin_refresh(wanted)
        assert self.has_reached(wanted) == refresh.is_done
        if not refresh.is_done:
            self.waiting[refresh] = wanted

    @rule(partition=st.integers(0, PARTITIONS - 1), entry=st.integers(0, 20))
    def read(self, partition: int, entry: int) -> None:
        position = Position(1, entry)
        self.positions[partition] = max(self.positions[partition], position)
        done = self.state.read_upto(partition, position)
        assert len(done) == len(set(done))
        expected = {each for each, ends in self.waiting.items() if self.has_reached(ends)}
        assert expected == set(done)
        for each in done:
            del self.waiting[each]

    @invariant()
    def what_waits_is_not_done(self) -> None:
        assert not any(each.is_done for each in self.waiting)


TestRefreshes = RefreshMachine.TestCase
TestRefreshes.settings = settings(max_examples=60, stateful_step_count=40)

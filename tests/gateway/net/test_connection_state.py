"""Which request may start, and which response may leave."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.gateway.net.connection_state import (
    HOLD_SATURATED,
    ByteBudget,
    ConnectionState,
    ResponseSlot,
)


def make_state(limit: int = 1_000_000) -> ConnectionState:
    return ConnectionState(ByteBudget(limit))


def open_slot(
    state: ConnectionState, *, is_exclusive: bool = False, size: int = 10
) -> ResponseSlot:
    slot = ResponseSlot()
    state.open(slot, size, is_exclusive)
    return slot


def frame(text: str) -> memoryview:
    return memoryview(text.encode())


def test_produce_pipelines_behind_produce_and_nothing_else_does() -> None:
    state = make_state()
    open_slot(state)
    assert state.can_start(True)
    assert not state.can_start(False)


def test_exclusive_request_lets_nothing_start_beside_it() -> None:
    state = make_state()
    slot = open_slot(state, is_exclusive=True)
    assert not state.can_start(True)
    assert not state.can_start(False)
    slot.response = (b"done",)
    assert state.advance()
    assert state.can_start(False)


def test_responses_leave_in_request_order_whatever_order_they_complete_in() -> None:
    state = make_state()
    first, second, third = (open_slot(state) for _ in range(3))
    third.response = (b"3",)
    assert not state.advance()
    first.response = (b"1", b"one")
    assert state.advance()
    assert [b"1", b"one"] == state.take_output()
    second.response = (b"2",)
    assert state.advance()
    assert [b"2", b"3"] == state.take_output()
    assert [] == state.take_output()


def test_waiting_requests_keep_their_order_behind_one_that_cannot_start() -> None:
    """A Produce that arrives behind a waiting Metadata must not overtake it."""
    state = make_state()
    produce = open_slot(state)
    state.wait(frame("metadata"), is_pipelined=False)
    assert not state.can_start(True)
    state.wait(frame("produce"), is_pipelined=True)
    assert state.take_startable() is None
    produce.response = (b"",)
    state.advance()
    assert state.take_startable() == frame("metadata")
    assert state.take_startable() == frame("produce")
    assert state.take_startable() is None


def test_request_put_back_is_the_first_again() -> None:
    state = make_state()
    state.wait(frame("second"), is_pipelined=True)
    state.wait(frame("first"), is_pipelined=True, is_first=True)
    assert state.take_startable() == frame("first")


def test_hold_keeps_requests_back_until_it_is_released() -> None:
    state = make_state()
    state.holds |= HOLD_SATURATED
    assert not state.can_start(True)
    state.wait(frame("produce"), is_pipelined=True)
    assert state.take_startable() is None
    state.holds &= ~HOLD_SATURATED
    assert state.take_startable() == frame("produce")


def test_bytes_count_from_reading_to_answering_and_are_given_back_on_loss() -> None:
    budget = ByteBudget(15)
    state = ConnectionState(budget)
    slot = open_slot(state, size=10)
    state.wait(frame("123456"), is_pipelined=True)
    assert (16, 16, True) == (state.request_bytes, budget.used, budget.is_exceeded)
    assert 2 == state.request_count
    slot.response = (b"",)
    state.advance()
    assert (6, 6, False) == (state.request_bytes, budget.used, budget.is_exceeded)
    other = open_slot(state, size=4)
    assert [other] == state.clear()
    assert (0, 0, 0) == (state.request_bytes, budget.used, state.request_count)


def test_drop_waiting_forgets_requests_that_did_not_start() -> None:
    state = make_state()
    slot = open_slot(state, size=3)
    state.wait(frame("late"), is_pipelined=True)
    state.drop_waiting()
    assert (3, 0) == (state.request_bytes, state.waiting_count)
    assert slot in state.slots


class ConnectionMachine(RuleBasedStateMachine):
    """Requests numbered in the order of arrival; every response carries its request's number."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = ByteBudget(1 << 30)
        self.state = ConnectionState(self.budget)
        self.arrived = 0
        self.running: list[tuple[int, bool, ResponseSlot]] = []
        self.left: list[int] = []

    def start(self, number: int, is_pipelined: bool) -> None:
        assert all(pipelined for _, pipelined, _ in self.running), "started beside an exclusive"
        assert is_pipelined or not self.running, "an exclusive started behind others"
        slot = ResponseSlot()
        self.state.open(slot, 8, not is_pipelined)
        self.running.append((number, is_pipelined, slot))

    @rule(is_pipelined=st.booleans())
    def arrive(self, is_pipelined: bool) -> None:
        number = self.arrived
        self.arrived += 1
        if self.state.can_start(is_pipelined):
            self.start(number, is_pipelined)
        else:
            packed = memoryview(bytes([is_pipelined]) + number.to_bytes(7, "big"))
            self.state.wait(packed, is_pipelined=is_pipelined)

    @precondition(lambda self: any(slot.response is None for _, _, slot in self.running))
    @rule(pick=st.randoms(use_true_random=False))
    def complete(self, pick: Random) -> None:
        number, _, slot = pick.choice([one for one in self.running if one[2].response is None])
        slot.response = (number.to_bytes(8, "big"),)
        self.state.advance()
        self.running = [one for one in self.running if one[2] in self.state.slots]
        self.left += [int.from_bytes(each, "big") for each in self.state.take_output()]
        while (waiting := self.state.take_startable()) is not None:
            self.start(int.from_bytes(waiting[1:], "big"), bool(waiting[0]))

    @rule(bit=st.sampled_from([1, 2, 4]))
    def hold_and_release(self, bit: int) -> None:
        self.state.holds |= bit
        assert not self.state.can_start(True)
        self.state.holds &= ~bit

    @invariant()
    def responses_left_in_request_order(self) -> None:
        assert self.left == list(range(len(self.left)))

    @invariant()
    def bytes_add_up(self) -> None:
        held = self.state.request_count * 8
        assert held == self.state.request_bytes == self.budget.used


ConnectionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_connection_machine = ConnectionMachine.TestCase

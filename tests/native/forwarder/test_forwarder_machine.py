"""A machine that plays source and target of a forwarder at random, and compares."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.native.forwarder.forwarder_state import (
    Effect,
    ForwarderState,
    MarkDelete,
    Prepare,
    Read,
    Rewind,
    Send,
)
from tests.native.forwarder.builders import LIMITS, RETRIED, source_entry


class ForwarderMachine(RuleBasedStateMachine):
    """A source that grows, is read, set back, and fails; a target that keeps its promises.

    What was sent is a list of entries. Nothing may be passed over: an entry is only followed by the
    next one, or by an earlier one, and this only after a seek.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = ForwarderState(LIMITS)
        self.now_ms = 0
        self.number = 0
        self.end = 0
        self.marked = 0  # of the source: entries before it are acknowledged
        self.read_next = 0
        self.target: list[int] = []
        self.has_failed = False
        self.sends: list[tuple[Send, bool]] = []
        self.pending: list[Effect] = []
        self.first_unacknowledged = 0
        self.was_set = False

    def after(self) -> None:
        for effect in self.state.decide(self.now_ms, sends_in_flight_max=3):
            if isinstance(effect, Send):
                if not self.has_failed:
                    self._appended(effect.position.entry_id)
                self.sends.append((effect, not self.has_failed))
                assert len(self.sends) <= 3
            else:
                if isinstance(effect, Rewind):
                    assert not self.sends
                    # The entries are dropped: an earlier read does not move the position any more.
                    kept = (MarkDelete,)
                    self.pending = [each for each in self.pending if isinstance(each, kept)]
                self.pending.append(effect)

    def _appended(self, number: int) -> None:
        if self.was_set:
            assert number <= max(
                self.first_unacknowledged, self.target[-1] + 1 if self.target else 0
            )
        else:
            assert len(self.target) == number, "once, in order"
        self.target.append(number)

    def _take(self, data: st.DataObject, kind: type[Effect]) -> Effect:
        effect = data.draw(st.sampled_from([e for e in self.pending if isinstance(e, kind)]))
        self.pending.remove(effect)
        return effect

    def has(self, kind: type[Effect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.pending)

    def is_outdated(self, number: int) -> bool:
        return number != self.number

    def look(self) -> None:
        if self.state.number >= 0 and self.is_outdated(self.state.number):
            self.state.outdated()
        self.after()

    @rule()
    def begin(self) -> None:
        self.look()

    @rule(count=st.integers(1, 4))
    def grow(self, count: int) -> None:
        self.end += count

    @rule(ms=st.sampled_from([50, 500]))
    def let_time_pass(self, ms: int) -> None:
        self.now_ms += ms
        self.look()

    @precondition(lambda self: self.has(Rewind))
    @rule(data=st.data(), is_refused=st.booleans())
    def rewind(self, data: st.DataObject, is_refused: bool) -> None:
        self._take(data, Rewind)
        if is_refused:
            self.state.rewind_failed(RETRIED)
        else:
            self.number += 1
            self.read_next = self.marked
            self.has_failed = False
            self.state.rewound(self.number)
        self.look()

    @precondition(lambda self: self.has(Read) and self.read_next < self.end)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        effect = self._take(data, Read)
        assert isinstance(effect, Read)
        if not self.is_outdated(effect.number):
            upto = min(self.end, self.read_next + effect.count)
            entries = [source_entry(number) for number in range(self.read_next, upto)]
            self.read_next = upto
            self.state.read(effect.number, entries)
        self.look()

    @precondition(lambda self: self.has(Prepare))
    @rule(data=st.data(), outcome=st.sampled_from(["sent", "sent", "nothing", "fails"]))
    def prepare(self, data: st.DataObject, outcome: str) -> None:
        effect = self._take(data, Prepare)
        assert isinstance(effect, Prepare)
        position = effect.entry.position
        if outcome == "fails":
            self.state.prepare_failed(effect.number, position, RETRIED)
        else:
            self.state.prepared(effect.number, position, effect.entry.data)
        self.look()

    @precondition(lambda self: bool(self.sends))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.sends) - 1))
        effect, was_appended = self.sends.pop(index)
        if was_appended:
            self.state.confirmed(effect.number, effect.position)
        else:
            self.state.send_failed(effect.number, effect.position, RETRIED)
        self.look()

    @rule()
    def refuse(self) -> None:
        self.has_failed = True

    @precondition(lambda self: self.has(MarkDelete))
    @rule(data=st.data(), is_lost=st.booleans())
    def mark(self, data: st.DataObject, is_lost: bool) -> None:
        effect = self._take(data, MarkDelete)
        assert isinstance(effect, MarkDelete)
        if not self.is_outdated(effect.number):
            number = effect.entry.position.entry_id
            assert number in self.target
            self.marked = max(self.marked, number + 1)
            if is_lost:
                self.state.mark_failed(effect.number, RETRIED)
            else:
                self.state.marked(effect.number, effect.entry.position)
        self.look()

    @precondition(lambda self: self.end > 0)
    @rule(data=st.data())
    def set_place(self, data: st.DataObject) -> None:
        """A client resets the source; later sends begin at that position."""
        self.marked = self.read_next = data.draw(st.integers(0, self.end - 1))
        self.number += 1
        self.was_set = True
        self.first_unacknowledged = max(self.first_unacknowledged, self.marked)
        self.look()

    @invariant()
    def limits_hold(self) -> None:
        assert self.state.in_flight <= LIMITS.entries_in_flight_max

    def teardown(self) -> None:
        """Whatever happened, every unacknowledged entry arrives once failures stop."""
        for _ in range(1000):
            self.now_ms += 1000
            self.look()
            if self.sends:
                effect, was_appended = self.sends.pop(0)
                if was_appended:
                    self.state.confirmed(effect.number, effect.position)
                else:
                    self.state.send_failed(effect.number, effect.position, RETRIED)
            elif self.pending:
                self._perform(self.pending.pop(0))
            if self.marked == self.end and not self.sends:
                break
        assert self.end == self.marked
        assert set(range(self.first_unacknowledged, self.end)) <= set(self.target)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Rewind():
                self.number += 1
                self.read_next = self.marked
                self.has_failed = False
                self.state.rewound(self.number)
            case Read():
                if self.is_outdated(effect.number) or self.read_next >= self.end:
                    self.pending.append(effect)
                    return
                upto = min(self.end, self.read_next + effect.count)
                self.state.read(
                    effect.number, [source_entry(n) for n in range(self.read_next, upto)]
                )
                self.read_next = upto
            case Prepare():
                self.state.prepared(effect.number, effect.entry.position, effect.entry.data)
            case MarkDelete():
                if not self.is_outdated(effect.number):
                    self.marked = max(self.marked, effect.entry.position.entry_id + 1)
                    self.state.marked(effect.number, effect.entry.position)


TestForwarderMachine = ForwarderMachine.TestCase

"""What a forwarder decides: tables, and a machine that plays source and target at random."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledger import Position
from native.errors import InvalidArgument, Unavailable
from native.forwarder_state import (
    Effect,
    Failure,
    ForwarderState,
    ForwardLimits,
    MarkDelete,
    Phase,
    Prepare,
    Read,
    Rewind,
    Send,
    SourceEntry,
)
from subscriptions.model import ALL

LIMITS = ForwardLimits(
    entries_in_flight_max=5, bytes_in_flight_max=50, read_entries_max=3, backoff_min_ms=100,
    backoff_max_ms=500,
)  # fmt: skip
RETRIED = Failure(Unavailable("later"), is_final=False)
FINAL = Failure(InvalidArgument("never"), is_final=True)


def entry(number: int, size: int = 1) -> SourceEntry:
    return SourceEntry(Position(7, number), b"%d" % number * size, ALL, 1)


def at(number: int) -> Position:
    return Position(7, number)


class Player:
    """A state with the effects that it has asked for, under way until the test says what came."""

    def __init__(self, limits: ForwardLimits = LIMITS) -> None:
        self.state = ForwarderState(limits)
        self.now_ms = 0
        self.number = 0

    def decide(self) -> list[Effect]:
        return self.state.decide(self.now_ms, sends_in_flight_max=2)

    def rewound(self) -> list[Effect]:
        self.number += 1
        self.state.rewound(self.number)
        return self.decide()

    def read(self, *numbers: int) -> list[Effect]:
        self.state.read(self.number, [entry(number) for number in numbers])
        return self.decide()

    def prepared(self, *numbers: int) -> list[Effect]:
        for number in numbers:
            self.state.prepared(self.number, at(number), entry(number).data)
        return self.decide()

    def confirmed(self, number: int) -> list[Effect]:
        self.state.confirmed(self.number, at(number))
        return self.decide()

    def marked(self, number: int) -> list[Effect]:
        self.state.marked(self.number, at(number))
        return self.decide()


def started(limits: ForwardLimits = LIMITS) -> Player:
    player = Player(limits)
    assert [Rewind()] == player.decide()
    assert [] == player.decide()
    assert [Read(1, min(3, limits.entries_in_flight_max), 50)] == player.rewound()
    return player


def send(number: int, revision: int = 1) -> Send:
    return Send(revision, at(number), entry(number).data)


def test_an_entry_goes_all_the_way() -> None:
    player = started()
    assert [Prepare(1, entry(0)), Read(1, 3, 49)] == player.read(0)
    assert [send(0)] == player.prepared(0)
    assert 1 == player.state.in_flight
    assert [MarkDelete(1, entry(0))] == player.confirmed(0)
    assert [] == player.marked(0)
    assert (0, at(0), 1) == (
        player.state.in_flight, player.state.marked_upto, player.state.forwarded_count,
    )  # fmt: skip


def test_what_is_prepared_early_waits_for_what_is_before_it() -> None:
    player = started()
    player.read(0, 1, 2)
    assert [] == player.prepared(1)
    assert [] == player.prepared(2)
    assert [send(0), send(1)] == player.prepared(0)
    assert [MarkDelete(1, entry(0)), send(2)] == sorted(player.confirmed(0), key=repr)


def test_confirmations_out_of_order_acknowledge_without_a_gap() -> None:
    """That the second is there tells that the first is, whenever its own answer comes."""
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    assert MarkDelete(1, entry(1)) in player.confirmed(1)
    assert [] == player.confirmed(0)


def test_only_the_newest_of_what_is_confirmed_meanwhile_is_acknowledged() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0, 1, 2)
    assert MarkDelete(1, entry(0)) in player.confirmed(0)
    player.confirmed(1)
    player.confirmed(2)
    assert [MarkDelete(1, entry(2))] == player.marked(0)


def test_entries_for_which_nothing_is_sent_are_acknowledged_in_their_turn() -> None:
    player = started()
    player.read(0, 1)
    player.state.prepared(1, at(1), None)
    assert [] == player.decide()
    assert [send(0)] == player.prepared(0)
    assert MarkDelete(1, entry(1)) in player.confirmed(0)


def test_limits_stop_the_reading_and_confirmations_let_it_go_on() -> None:
    player = started()
    assert Read(1, 2, 47) in player.read(0, 1, 2)
    effects = player.read(3, 4)
    assert [Prepare(1, entry(3)), Prepare(1, entry(4))] == effects
    player.prepared(0)
    assert Read(1, 1, 46) in player.confirmed(0)


def test_bytes_stop_the_reading_too() -> None:
    player = started()
    player.state.read(1, [entry(0, size=50)])
    assert [Prepare(1, entry(0, size=50))] == player.decide()


def test_a_failed_preparation_drops_what_is_behind_it_and_rewinds_once() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0)
    player.state.prepare_failed(1, at(1), RETRIED)
    assert [] == player.decide()
    player.state.prepare_failed(1, at(2), RETRIED)
    assert [] == player.prepared(2)
    assert Phase.SETTLING is player.state.phase
    assert [MarkDelete(1, entry(0))] == player.confirmed(0)
    assert [] == player.marked(0)
    assert (Phase.WAITING, 100) == (player.state.phase, player.state.retry_at_ms)
    player.now_ms = 100
    assert [Rewind()] == player.decide()
    assert [Read(2, 3, 50)] == player.rewound()


def test_what_was_forwarded_and_not_acknowledged_is_not_sent_again() -> None:
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.confirmed(0)
    player.state.mark_failed(1, RETRIED)
    assert [] == player.decide()
    assert [MarkDelete(1, entry(1))] == player.confirmed(1)
    player.state.mark_failed(1, RETRIED)
    player.decide()
    assert Phase.WAITING is player.state.phase
    player.now_ms = player.state.retry_at_ms
    assert [Rewind()] == player.decide()
    player.rewound()
    assert [Prepare(2, entry(2)), MarkDelete(2, entry(1))] == [
        effect for effect in player.read(0, 1, 2) if not isinstance(effect, Read)
    ]


def test_what_a_set_place_owes_is_sent_though_it_was_before() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0, 1, 2)
    player.confirmed(0)
    player.state.outdated()
    assert [] == player.decide()
    assert [] == player.confirmed(1)
    # Nothing failed: no back-off.
    assert [Rewind()] == player.confirmed(2)
    player.rewound()
    effects = player.read(0, 1)
    assert {Prepare(2, entry(0)), Prepare(2, entry(1))} <= set(effects)


def test_results_of_an_older_revision_are_dropped() -> None:
    player = started()
    player.read(0)
    player.state.outdated()
    assert [Rewind()] == player.decide()
    player.rewound()
    state = player.state
    state.read(1, [entry(5)])
    state.prepared(1, at(0), b"old")
    state.prepare_failed(1, at(0), FINAL)
    state.read_failed(1, FINAL)
    state.mark_failed(1, FINAL)
    state.ended(1)
    assert [] == player.decide()
    assert (Phase.RUNNING, 0) == (state.phase, state.in_flight)
    assert Prepare(2, entry(0)) in player.read(0)
    state.prepared(1, at(0), b"old")
    assert [] == player.decide()
    assert [send(0, revision=2)] == player.prepared(0)


def test_back_off_doubles_up_to_its_limit_and_begins_anew_with_a_success() -> None:
    player = started()
    delays = []
    for attempt in range(5):
        if attempt:
            player.rewound()
        player.read(0)
        player.state.prepare_failed(player.number, at(0), RETRIED)
        player.decide()
        delays.append(player.state.retry_at_ms - player.now_ms)
        player.now_ms = player.state.retry_at_ms
        assert [Rewind()] == player.decide()
    assert [100, 200, 400, 500, 500] == delays
    player.rewound()
    player.read(0, 1)
    player.prepared(0)
    player.confirmed(0)
    player.marked(0)
    player.state.prepare_failed(player.number, at(1), RETRIED)
    player.decide()
    assert 100 == player.state.retry_at_ms - player.now_ms


def test_of_several_failures_the_first_in_order_decides() -> None:
    """The others follow from it: whatever is sent behind a batch that was refused is refused."""
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.state.send_failed(1, at(1), RETRIED)
    player.decide()
    player.state.send_failed(1, at(0), FINAL)
    player.decide()
    assert (Phase.FINISHED, FINAL.error) == (player.state.phase, player.state.error)


def test_a_confirmation_behind_a_failure_acknowledges_nothing() -> None:
    """It only comes when the answer to the first was lost, and then it may be sent twice."""
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.state.send_failed(1, at(0), RETRIED)
    assert [] == player.confirmed(1)
    player.now_ms = player.state.retry_at_ms
    assert [Rewind()] == player.decide()
    player.rewound()
    assert {Prepare(2, entry(0)), Prepare(2, entry(1))} <= set(player.read(0, 1))


def test_a_final_failure_behind_one_that_is_not_is_tried_again() -> None:
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.state.send_failed(1, at(1), FINAL)
    player.state.send_failed(1, at(0), RETRIED)
    player.decide()
    assert (Phase.WAITING, None) == (player.state.phase, player.state.error)


def test_a_rewind_that_fails_is_tried_again() -> None:
    player = Player()
    player.decide()
    player.state.rewind_failed(RETRIED)
    assert [] == player.decide()
    player.now_ms = 100
    assert [Rewind()] == player.decide()


def test_close_acknowledges_what_was_sent_and_begins_nothing() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0)
    player.state.close()
    assert [] == player.decide()
    assert [MarkDelete(1, entry(0))] == player.confirmed(0)
    assert Phase.RUNNING is player.state.phase
    player.marked(0)
    assert (Phase.FINISHED, None) == (player.state.phase, player.state.error)


def test_close_ends_a_back_off_and_a_rewind() -> None:
    player = started()
    player.state.read_failed(1, RETRIED)
    player.decide()
    player.state.close()
    assert Phase.FINISHED is player.state.phase
    player = Player()
    player.decide()
    player.state.close()
    assert [] == player.rewound()
    assert Phase.FINISHED is player.state.phase


def test_the_end_of_the_source_is_the_end_when_everything_is_acknowledged() -> None:
    player = started()
    player.read(0)
    player.state.ended(1)
    assert [send(0)] == player.prepared(0)
    player.confirmed(0)
    assert Phase.RUNNING is player.state.phase
    player.marked(0)
    assert (Phase.FINISHED, None) == (player.state.phase, player.state.error)


class ForwarderMachine(RuleBasedStateMachine):
    """A source that grows, is read, set back, and fails; a target that keeps its promises.

    What was sent is a list of entries. Nothing may be passed over: an entry is only followed by the
    next one, or by an earlier one, and this only when somebody has set the place.
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
        self.owed_from = 0
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
                    # What was read is dropped: no read of before moves the place any more.
                    kept = (MarkDelete,)
                    self.pending = [each for each in self.pending if isinstance(each, kept)]
                self.pending.append(effect)

    def _appended(self, number: int) -> None:
        if self.was_set:
            assert number <= max(self.owed_from, self.target[-1] + 1 if self.target else 0)
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
            entries = [entry(number) for number in range(self.read_next, upto)]
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
        """Somebody sets the place; what is sent from now on begins there."""
        self.marked = self.read_next = data.draw(st.integers(0, self.end - 1))
        self.number += 1
        self.was_set = True
        self.owed_from = max(self.owed_from, self.marked)
        self.look()

    @invariant()
    def limits_hold(self) -> None:
        assert self.state.in_flight <= LIMITS.entries_in_flight_max

    def teardown(self) -> None:
        """Whatever happened, everything that is owed arrives when nothing fails any more."""
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
        assert set(range(self.owed_from, self.end)) <= set(self.target)

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
                self.state.read(effect.number, [entry(n) for n in range(self.read_next, upto)])
                self.read_next = upto
            case Prepare():
                self.state.prepared(effect.number, effect.entry.position, effect.entry.data)
            case MarkDelete():
                if not self.is_outdated(effect.number):
                    self.marked = max(self.marked, effect.entry.position.entry_id + 1)
                    self.state.marked(effect.number, effect.entry.position)


TestForwarderMachine = ForwarderMachine.TestCase

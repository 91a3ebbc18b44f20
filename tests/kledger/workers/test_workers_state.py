"""When workers are started, started again and ended."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.cli import EXIT_FAILURE, EXIT_USAGE
from kledger.workers.workers_state import (
    FAILED,
    FAILED_STARTS_MAX,
    MISTAKE,
    RESTART_DELAY_MAX_MS,
    RESTART_DELAY_MS,
    TERMINATED,
    AnnounceReady,
    EndWorkers,
    KillWorkers,
    Leave,
    StartWorker,
    WorkerPhase,
    WorkersEffect,
    WorkersState,
)

KILLED = -9


def running(count: int = 2) -> WorkersState:
    """Return a state whose workers are all ready."""
    state = WorkersState(count)
    state.begin()
    for index in range(count):
        state.ready(index)
    return state


def test_exit_codes_are_those_of_the_command_line() -> None:
    assert (EXIT_FAILURE, EXIT_USAGE) == (FAILED, MISTAKE)


def test_ready_is_announced_once_when_all_are() -> None:
    state = WorkersState(2)
    assert [StartWorker(0), StartWorker(1)] == state.begin()
    assert [] == state.ready(1)
    assert [AnnounceReady()] == state.ready(0)
    assert [StartWorker(0)] == state.ended(0, KILLED)
    assert [] == state.ready(0)


def test_worker_that_was_ready_is_started_again_at_once_each_time() -> None:
    state = running()
    for status in (KILLED, 0, -11, 2, 70) * 10:
        assert [StartWorker(1)] == state.ended(1, status)
        assert [] == state.ready(1)


def test_failed_starts_wait_longer_each_time_and_then_end_all() -> None:
    state = running()
    state.ended(1, KILLED)
    delays = []
    for _ in range(FAILED_STARTS_MAX):
        [effect] = state.ended(1, KILLED)
        assert isinstance(effect, StartWorker)
        delays.append(effect.after_ms)
        assert WorkerPhase.WAITING is state.phase(1)
        assert state.restarted(1)
    assert [RESTART_DELAY_MS, 2 * RESTART_DELAY_MS, 4 * RESTART_DELAY_MS] == delays[:3]
    assert RESTART_DELAY_MAX_MS == delays[-1] == max(delays)
    assert [EndWorkers()] == state.ended(1, KILLED)
    assert [Leave(FAILED)] == state.ended(0, 0)


def test_ready_worker_has_all_its_starts_again() -> None:
    state = running()
    state.ended(1, KILLED)
    for _ in range(2 * FAILED_STARTS_MAX):
        assert [StartWorker(1, RESTART_DELAY_MS)] == state.ended(1, KILLED)
        state.restarted(1)
        state.ready(1)
        assert [StartWorker(1)] == state.ended(1, KILLED)


def test_worker_that_says_that_it_failed_ends_all() -> None:
    """Exit code 1: its disk or its code fails, which the others have, too."""
    state = running(3)
    assert [EndWorkers()] == state.ended(1, FAILED)
    assert [] == state.ended(0, 0)
    assert [Leave(FAILED)] == state.ended(2, 0)


def test_mistake_at_the_first_start_ends_all_with_its_code() -> None:
    state = WorkersState(2)
    state.begin()
    assert [EndWorkers()] == state.ended(0, MISTAKE)
    assert [Leave(MISTAKE)] == state.ended(1, MISTAKE)


def test_mistake_of_a_worker_that_is_started_again_is_tried_again() -> None:
    """Its settings were good before: something is in the way for some time."""
    state = running()
    state.ended(1, KILLED)
    assert [StartWorker(1, RESTART_DELAY_MS)] == state.ended(1, MISTAKE)


def test_signal_ends_all_in_order() -> None:
    state = running()
    assert [EndWorkers()] == state.signalled()
    assert state.is_stopping
    assert [] == state.ended(1, 0)
    assert [Leave(0)] == state.ended(0, 0)


def test_worker_may_end_by_the_signal_itself() -> None:
    """Before it has a store, or afterwards: a service manager may have told it to stop earlier."""
    state = WorkersState(2)
    state.begin()
    state.ready(0)
    state.signalled()
    assert [] == state.ended(1, TERMINATED)
    assert [Leave(0)] == state.ended(0, TERMINATED)


def test_worker_that_cannot_close_everything_is_a_failure() -> None:
    state = running()
    state.signalled()
    assert [] == state.ended(0, FAILED)
    assert [Leave(FAILED)] == state.ended(1, 0)


def test_second_signal_kills() -> None:
    state = running()
    state.signalled()
    assert [KillWorkers()] == state.signalled()
    assert [] == state.ended(0, KILLED)
    assert [Leave(FAILED)] == state.ended(1, KILLED)


def test_worker_that_waits_is_not_started_after_a_signal() -> None:
    state = running(1)
    state.ended(0, KILLED)
    state.ended(0, KILLED)
    assert [Leave(0)] == state.signalled()
    assert not state.restarted(0)


class WorkersMachine(RuleBasedStateMachine):
    """Processes that become ready and die in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = WorkersState(3)
        self.alive: set[int] = set()
        self.delayed: set[int] = set()
        self.announced = 0
        self.left: int | None = None
        self.perform(self.state.begin())

    def perform(self, effects: list[WorkersEffect]) -> None:
        for effect in effects:
            match effect:
                case StartWorker(index, 0):
                    assert index not in self.alive | self.delayed
                    self.alive.add(index)
                case StartWorker(index, _):
                    assert index not in self.alive | self.delayed
                    self.delayed.add(index)
                case AnnounceReady():
                    self.announced += 1
                case Leave(code):
                    assert self.left is None
                    self.left = code
                case _:
                    assert self.alive

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), status=st.sampled_from([0, 0, -9, -9, -15, 1, 2]))
    def die(self, data: st.DataObject, status: int) -> None:
        index = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(index)
        self.perform(self.state.ended(index, status))

    @precondition(lambda self: self.starting())
    @rule(data=st.data())
    def become_ready(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(self.starting()))
        self.perform(self.state.ready(index))

    @precondition(lambda self: self.delayed)
    @rule(data=st.data())
    def pass_delay(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.delayed)))
        self.delayed.discard(index)
        if self.state.restarted(index):
            self.alive.add(index)

    @precondition(lambda self: self.left is None)
    @rule()
    def signal(self) -> None:
        self.perform(self.state.signalled())

    @precondition(lambda self: self.left is not None)
    @rule()
    def rest(self) -> None:
        assert self.state.is_stopping

    def starting(self) -> list[int]:
        if self.state.is_stopping:
            return []
        return [each for each in sorted(self.alive) if not self.is_ready(each)]

    def is_ready(self, index: int) -> bool:
        return self.state.phase(index) is WorkerPhase.READY

    @invariant()
    def every_worker_runs_waits_or_has_ended(self) -> None:
        if not self.state.is_stopping:
            assert {0, 1, 2} == self.alive | self.delayed
        assert not self.alive & self.delayed

    @invariant()
    def parent_leaves_with_the_last_worker(self) -> None:
        assert (self.left is not None) == (self.state.is_stopping and not self.alive)

    @invariant()
    def ready_is_announced_at_most_once(self) -> None:
        assert self.announced <= 1


WorkersMachine.TestCase.settings = settings(deadline=None)
TestWorkersMachine = WorkersMachine.TestCase

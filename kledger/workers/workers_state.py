"""Workers state: which worker is started, started again or ended, and when the parent leaves.

Rule: pure; every event returns what the parent has to do. A worker that was ready is started again
at once, whatever it died of; one that dies before it is ready is tried again after a growing delay,
FAILED_STARTS_MAX times. A worker that ends with FAILED says that its store, or the server itself,
cannot go on: the others share its disk and its code, so all end.
Must not know: processes, clocks.
"""

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

FAILED: Final = 1
MISTAKE: Final = 2
"""Exit codes of `kledger serve`: something is broken; it can be started differently."""
TERMINATED: Final = -15
"""The status of a process that SIGTERM has ended: a worker handles it as long as it has a store."""

RESTART_DELAY_MS: Final = 100
RESTART_DELAY_MAX_MS: Final = 5_000
FAILED_STARTS_MAX: Final = 10
"""Failed starts in a row of one worker, after which all end; they take half a minute."""


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start the process of a worker, after a delay."""

    index: int
    after_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndWorkers:
    """Ask every process to end in order."""


@dataclass(frozen=True, slots=True)
class KillWorkers:
    """End every process at once."""


@dataclass(frozen=True, slots=True)
class AnnounceReady:
    """Say that all workers are ready; happens once."""


@dataclass(frozen=True, slots=True)
class Leave:
    """All processes have ended; the exit code of the parent."""

    code: int


WorkersEffect: TypeAlias = StartWorker | EndWorkers | KillWorkers | AnnounceReady | Leave


class WorkerPhase(enum.Enum):
    """Where one worker is.

    STARTING: its process runs or is about to; leads to READY or, if it dies, to WAITING.
    READY: it serves clients; if it dies, STARTING follows.
    WAITING: for its next start.
    ENDED: it is not started any more.
    """

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    ENDED = "ended"


class WorkersState:
    """All workers of one parent."""

    __slots__ = ("_code", "_failed_starts", "_is_announced", "_is_stopping", "_phases")

    def __init__(self, count: int) -> None:
        self._phases = [WorkerPhase.STARTING] * count
        self._failed_starts = [0] * count
        self._is_announced = False
        self._is_stopping = False
        self._code = 0

    @property
    def is_stopping(self) -> bool:
        """Whether all workers end, or have ended."""
        return self._is_stopping

    def phase(self, index: int) -> WorkerPhase:
        """Return where a worker is."""
        return self._phases[index]

    def begin(self) -> list[WorkersEffect]:
        """Start all workers; call this once."""
        return [StartWorker(index) for index in range(len(self._phases))]

    def restarted(self, index: int) -> bool:
        """Note that the delay of a StartWorker is over; return whether it still counts."""
        if self._is_stopping:
            return False
        self._phases[index] = WorkerPhase.STARTING
        return True

    def ready(self, index: int) -> list[WorkersEffect]:
        """Note that a worker accepts clients."""
        assert self._phases[index] is WorkerPhase.STARTING, self._phases[index]
        self._phases[index] = WorkerPhase.READY
        self._failed_starts[index] = 0
        if self._is_announced or not all(each is WorkerPhase.READY for each in self._phases):
            return []
        self._is_announced = True
        return [AnnounceReady()]

    def ended(self, index: int, status: int) -> list[WorkersEffect]:
        """Note that the process of a worker has ended.

        Four cases: (1) all are ending; (2) the worker says that nothing can go on; (3) it was
        ready; (4) it was not.

        Args:
            index: of the worker.
            status: its exit code, or a negative number of a signal.
        """
        if self._is_stopping:
            self._phases[index] = WorkerPhase.ENDED
            if status not in (0, TERMINATED) and self._code == 0:
                self._code = FAILED
            return self._leave_if_ended()
        if status == FAILED or (status == MISTAKE and not self._is_announced):
            self._phases[index] = WorkerPhase.ENDED
            return self._end_all(status)
        if self._phases[index] is WorkerPhase.READY:
            self._phases[index] = WorkerPhase.STARTING
            return [StartWorker(index)]
        self._failed_starts[index] += 1
        if self._failed_starts[index] > FAILED_STARTS_MAX:
            self._phases[index] = WorkerPhase.ENDED
            return self._end_all(FAILED)
        self._phases[index] = WorkerPhase.WAITING
        doubled = RESTART_DELAY_MS << (self._failed_starts[index] - 1)
        return [StartWorker(index, min(doubled, RESTART_DELAY_MAX_MS))]

    def signalled(self) -> list[WorkersEffect]:
        """Note that the parent shall stop: the first time in order, then at once."""
        return [KillWorkers()] if self._is_stopping else self._end_all(0)

    def _end_all(self, code: int) -> list[WorkersEffect]:
        self._is_stopping = True
        self._code = code
        self._phases = [
            WorkerPhase.ENDED if each is WorkerPhase.WAITING else each for each in self._phases
        ]
        return self._leave_if_ended() or [EndWorkers()]

    def _leave_if_ended(self) -> list[WorkersEffect]:
        if all(each is WorkerPhase.ENDED for each in self._phases):
            return [Leave(self._code)]
        return []

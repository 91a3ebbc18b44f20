"""Run: one seed, from an empty disk through several lives of the process.

Rule: everything is drawn from the seed, in two streams: the actions, and the times of events. The
same seed writes the same trace, byte for byte.
Must not know: the use of the result.
"""

import gc
import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Self

from kledger.ledger import LedgerStore
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.testing import ClockPace
from kledger.runtime import containment, tasks
from kledger.runtime.entropy import SeededEntropy
from tests.simulation.bucket import Bucket
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import Disk
from tests.simulation.engine import SimulatedEngine
from tests.simulation.faults import Faults, InjectedFault
from tests.simulation.invariants import InvariantBroken
from tests.simulation.life import ACTIONS, Crash, Ending, Life
from tests.simulation.log_model import LogModel
from tests.simulation.loop import SimulatedLoop
from tests.simulation.retention_watch import RetentionWatch
from tests.simulation.scene import Scene
from tests.simulation.schedule import Schedule
from tests.simulation.seed_profile import SeedProfile, small_numbers
from tests.simulation.store_model import StoreModel
from tests.simulation.threads import simulated_threads
from tests.simulation.tier import SimulatedTier

TRACE_LINES = 40

FAULT_LOGGERS = (tasks.logger, containment.logger)


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that broke an invariant, as text, because it is sent between processes.

    Attributes:
        subject: the option of the command line that replays it.
    """

    seed: int
    life: int
    step: int
    error: str
    trace: tuple[str, ...]
    stack: str
    subject: str = ""

    @classmethod
    def of(
        cls,
        error: Exception,
        *,
        seed: int,
        trace: Sequence[str],
        life: int = 0,
        step: int,
        subject: str = "",
    ) -> Self:
        """Return that of an error that was raised while a seed ran."""
        return cls(
            seed=seed,
            life=life,
            step=step,
            error=f"{type(error).__name__}: {error}",
            trace=tuple(trace),
            stack="".join(traceback.format_exception(error)),
            subject=subject,
        )

    def __str__(self) -> str:
        return "\n".join(
            (
                self.stack,
                *self.trace[-TRACE_LINES:],
                f"seed {self.seed} broke in life {self.life}, step {self.step}: {self.error}",
                f"replay: python -m tests.simulation {self.subject}--seed {self.seed} --trace",
            )
        )


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace: list[str] = []
        self._random = Random(f"{seed} what")
        self._profile = SeedProfile.drawn(self._random, ACTIONS)
        self._schedule = Schedule(Random(f"{seed} when"), self._profile.pace)
        self._clock = SimulatedClock(self._schedule)
        rates = self._profile.fault_rates
        self._faults = Faults(Random(f"{seed} faults"), rates, self._clock)
        self._disk = Disk()
        self._bucket = Bucket(Random(f"{seed} bucket"))
        self._entropy = SeededEntropy(seed)
        self._sync = self._profile.store.durability == "fsync"
        self._model = StoreModel(self._disk, self._clock, sync=self._sync)
        self._model.logs = {name: LogModel(name) for name in self._profile.names}
        self._watch = RetentionWatch(
            is_known=self._model.is_cursor_known, is_taken=self._model.is_taken
        )
        self._disk.watch = self._see
        self._life = 0
        self._scene: Scene | None = None

    def go(self) -> Failure | None:
        """Run all lives; return the failure, if there is one."""
        self._write_line(f"seed {self.seed}: {self._profile}")
        try:
            with stopping_at_crashes(self._schedule):
                for life in range(self._profile.lives):
                    self._life = life
                    self._live(self._random.choice(list(Ending)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it breaks the run
            step = self._scene.step if self._scene else -1
            return Failure.of(error, seed=self.seed, trace=self.trace, life=self._life, step=step)
        return None

    def _live(self, ending: Ending) -> None:
        self._write_line(f"life {self._life}: {ending.value}")
        loop = SimulatedLoop(self._schedule)
        scene = self._scene = self._new_scene(loop)
        life = Life(scene, ending)
        try:
            with suppress(Crash):
                loop.run(life.run())
        finally:
            scene.is_over = True
            loop.end()
            self._schedule.forget_all()
        self._faults.is_on = False
        self._bucket.end_process(self._clock.now_ms())
        self._model.lose_all()
        self._crash(ending)

    def _crash(self, ending: Ending) -> None:
        """Lose what a crash loses."""
        if ending is Ending.POWER_CUT:
            lost = self._disk.cut_power(self._random.choice((0, 0, 1, 3)))
            self._write_line(f"{lost} groups are lost")
            self._watch.restart(self._disk.groups)
            self._model.may_lack_acknowledged |= not self._sync

    def _new_engine(self) -> SimulatedEngine:
        return SimulatedEngine(
            self._disk,
            self._faults,
            self._schedule,
            checkpoint_groups=self._profile.checkpoint_groups,
            resident=self._profile.resident,
        )

    def _new_scene(self, loop: SimulatedLoop) -> Scene:
        engine = self._new_engine()

        async def open_store() -> LedgerStore:
            store = LedgerStore.open(
                None,
                config=self._profile.store,
                clock=self._clock,
                engine=engine,
                threads=simulated_threads(self._schedule),
                start_pace=partial(ClockPace, self._clock),
                offloaders=SimulatedTier(self._bucket, self._faults, self._clock, self._schedule),
                entropy=self._entropy,
            )
            store.on_fatal = lambda error: self._write_line(f"a store has stopped: {error}")
            return await store

        return Scene(
            random=self._random,
            schedule=self._schedule,
            loop=loop,
            clock=self._clock,
            faults=self._faults,
            engine=engine,
            bucket=self._bucket,
            model=self._model,
            profile=self._profile,
            trace=self._write_line,
            open_store=open_store,
        )

    def _see(self, group: CommitGroup) -> None:
        """Check a written group; a broken invariant here is no failure of the disk."""
        try:
            self._watch.see(group)
        except InvariantBroken as error:
            self._schedule.interrupt(error)

    def _write_line(self, text: str) -> None:
        self.trace.append(f"{self._schedule.now_us} {text}")


class Crashes(logging.Handler):
    """Handles crashes and contained faults: those that were not injected stop the run."""

    def __init__(self, interrupt: Callable[[BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._interrupt = interrupt

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, InjectedFault):
            return
        self._interrupt(error or InvariantBroken(record.getMessage()))


@contextmanager
def stopping_at_crashes(schedule: Schedule) -> Iterator[None]:
    """Let crashes and contained faults that were not injected stop what runs in the body."""
    crashes = Crashes(schedule.interrupt)
    for logger in FAULT_LOGGERS:
        logger.addHandler(crashes)
    try:
        yield
    finally:
        for logger in FAULT_LOGGERS:
            logger.removeHandler(crashes)


@contextmanager
def simulation() -> Iterator[None]:
    """Prepare the process for runs: small constants, no logs, no automatic garbage collection."""
    packages = "ledger", "subscriptions", "gateway", "native", "named_topics", "topics", "nodes"
    names = tuple(f"kledger.{name}" for name in packages)
    loggers = [logging.getLogger(name) for name in names]
    levels, propagates = (
        [each.level for each in loggers],
        [each.propagate for each in FAULT_LOGGERS],
    )
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    for each in FAULT_LOGGERS:
        each.propagate = False
    gc.disable()
    try:
        with small_numbers():
            yield
    finally:
        gc.enable()
        for each, propagate in zip(FAULT_LOGGERS, propagates, strict=True):
            each.propagate = propagate
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)

"""A committer on a bench: an engine that counts calls, a submitter that records its own."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kledger.ledger.commits.committer import Committer, Operation
from kledger.ledger.engine.base import CommitGroup, StorageEngine
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.errors import LedgerError
from kledger.ledger.position import Position
from kledger.ledger.storage_health import StorageHealth
from kledger.ledger.testing import ManualClock
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

IN_MEMORY = 1 << 60


class Recorder:
    """A submitter of entries of one ledger; records the calls of its methods.

    Attributes:
        fault_in: the method that raises, after the call was recorded.
    """

    unit_kind = "partition"

    def __init__(self, committer: Committer, name: str = "", ledger_id: int = 1) -> None:
        self.committer = committer
        self.name = name
        self.ledger_id = ledger_id
        self.calls: list[str] = []
        self.next_entry = 0
        self.on_confirm: Callable[[int], None] = lambda entry_id: None
        self.fault_in = ""

    @property
    def unit_name(self) -> str:
        return self.name

    def close_after_fault(self, error: Exception) -> None:
        self.calls.append(f"closed: {error}")

    def _record(self, what: str) -> None:
        self.calls.append(what)
        if what.partition(" ")[0] == self.fault_in:
            raise RuntimeError(f"a fault in {self.fault_in}")

    def append(self, size: int = 10) -> None:
        """Do what a managed ledger does."""
        committer, entry_id = self.committer, self.next_entry
        self.next_entry += 1
        position = Position(self.ledger_id, entry_id)
        committer.entries.append((self.ledger_id, entry_id, bytes(size)))
        committer.operations.append((self, position, 0, b"", lambda position, error: None))
        committer.size += size
        if not committer.is_commit_scheduled:
            committer.schedule_commit()

    def confirm(self, operation: Operation) -> None:
        self._record(f"confirm {operation[1].entry_id}")
        self.on_confirm(operation[1].entry_id)

    def group_confirmed(self) -> None:
        self._record("group_confirmed")

    def revert(self) -> None:
        self._record("revert")

    def fail(self, operation: Operation, error: LedgerError) -> None:
        self._record(f"fail {operation[1].entry_id} {type(error).__name__}")

    def resume(self) -> None:
        self._record("resume")


class WatchedEngine(MemoryEngine):
    """Writes down what was committed in which thread, and can be made to want a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.on_commit: Callable[[], None] = lambda: None
        self.on_checkpoint: Callable[[], None] = lambda: None
        self.wants_checkpoint = False
        self.index_error: Exception | None = None
        self.delay_ms = 0

    def commit_delay_ms(self, size: int) -> int:
        return self.delay_ms

    def commit(self, group: CommitGroup, *, sync: bool) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.threads.append("loop" if is_main else "thread")
        self.on_commit()
        super().commit(group, sync=sync)

    def index(self, group: CommitGroup) -> None:
        if self.index_error is not None:
            raise self.index_error
        super().index(group)

    def checkpoint_due(self) -> bool:
        return self.wants_checkpoint

    def checkpoint(self) -> None:
        self.wants_checkpoint = False
        self.on_checkpoint()


class Bench:
    """A committer and what it stopped with."""

    def __init__(self, committer: Committer, fatal: list[LedgerError]) -> None:
        self.committer = committer
        self.fatal = fatal


@asynccontextmanager
async def bench(
    engine: StorageEngine,
    *,
    sync: bool = True,
    on_loop_bytes_max: int = 0,
    queue_bytes_max: int = 1 << 30,
    queue_count_max: int = 1 << 30,
    clock: ManualClock | None = None,
) -> AsyncIterator[Bench]:
    fatal: list[LedgerError] = []
    pool, supervisor = BlockingPool(1), Supervisor()
    clock = clock or ManualClock()
    committer = Committer(
        engine,
        sync=sync,
        on_loop_bytes_max=on_loop_bytes_max,
        queue_bytes_max=queue_bytes_max,
        queue_count_max=queue_count_max,
        clock=clock,
        pool=pool,
        supervisor=supervisor,
        timers=Timers(clock, supervisor),
        on_fatal=fatal.append,
        health=StorageHealth(ManualClock(), Metrics()),
    )
    try:
        yield Bench(committer, fatal)
    finally:
        await committer.close()
        await supervisor.close()
        pool.close()

"""ServerProcess: a native service over a simulated disk, from its start to its end.

Rule: a process that is killed writes nothing more, however far its tasks still run; what it had
written and not synced is for the disk to keep or to lose.
Must not know: clients, what is asked.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.testing import ClockPace
from kledger.native.errors import KledgerError
from kledger.native.server.service import NativeService
from kledger.runtime.entropy import SeededEntropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.topics import TopicRegistry
from kledger.topics.cleaner import Cleaner
from kledger.topics.offloading import Offloading
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import Disk
from tests.simulation.engine import SimulatedEngine
from tests.simulation.faults import Faults
from tests.simulation.named_topics.filters import is_kept
from tests.simulation.schedule import Schedule
from tests.simulation.threads import simulated_threads
from tests.topics.words import CleanerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What outlives a process, and the settings of the next one."""

    disk: Disk
    faults: Faults
    schedule: Schedule
    clock: SimulatedClock
    store: StoreConfig
    checkpoint_groups: int
    resident: float


@dataclass(slots=True, eq=False)
class ServerProcess:
    """One start of the server; `number`: how many there were before."""

    number: int
    engine: SimulatedEngine
    store: LedgerStore
    registry: TopicRegistry
    supervisor: Supervisor
    service: NativeService
    is_over: bool = False

    @classmethod
    async def start(
        cls, machine: Machine, number: int, on_stopped: Callable[[str], None]
    ) -> "ServerProcess":
        """Open the store. `on_stopped`: it has stopped itself."""
        clock = machine.clock
        engine = SimulatedEngine(
            machine.disk,
            machine.faults,
            machine.schedule,
            checkpoint_groups=machine.checkpoint_groups,
            resident=machine.resident,
        )
        store = await LedgerStore.open(
            None,
            config=machine.store,
            clock=clock,
            engine=engine,
            threads=simulated_threads(machine.schedule),
            start_pace=partial(ClockPace, clock),
        )
        registry = await TopicRegistry.open(store, None, clock, SeededEntropy(number))
        supervisor = Supervisor(machine.schedule.interrupt, store.containment)
        service = NativeService(
            store=store,
            registry=registry,
            clock=clock,
            timers=Timers(clock, supervisor),
            supervisor=supervisor,
            cleaner=Cleaner(registry, store, clock, supervisor, CleanerSettings()),
            offloading=Offloading(registry, store, clock, supervisor),
            function_modules=(is_kept.__module__,),
        )
        server = cls(number, engine, store, registry, supervisor, service)
        store.on_fatal = lambda error: None if server.is_over else on_stopped(str(error))
        return server

    def has_refused(self, error: BaseException) -> bool:
        """Return whether nothing has changed by a call that has failed."""
        return isinstance(error, KledgerError) and not (self.is_over or self.store.is_fenced)

    async def kill(self) -> None:
        """End without a last write."""
        self.is_over = True
        self.engine.failure = "the process has ended"
        await self.supervisor.close()
        with suppress(Exception):
            await self.store.close()

    async def close(self) -> None:
        """End as a server does that is stopped."""
        self.is_over = True
        await self.service.close()
        await self.registry.close()
        await self.supervisor.close()
        await self.store.close()
        await asyncio.sleep(0)

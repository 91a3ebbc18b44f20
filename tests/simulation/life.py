"""Life: a process with a store, from its start to the end that the seed draws.

Rule: every step performs one action and checks all handles. From time to time faults stop, all
operations end, and the whole state is compared. A life ends by a crash at any moment, by closing
the store, idle or busy, or because the store stopped itself.
Must not know: other lives.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum

from kledger.ledger import (
    LATEST,
    Fenced,
    LedgerInfo,
    LedgerState,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
)
from tests.simulation import (
    acknowledging,
    changing,
    compacting,
    consuming,
    cursor_reading,
    cursors,
    following,
    reading,
    revising,
    tiering,
    whole,
    writing,
)
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.log_model import HandleModel
from tests.simulation.recovery import recover
from tests.simulation.scene import TIMEOUT_S, Scene
from tests.simulation.seed_profile import ledger_config

TASKS_MAX = 12
OPENS = 0.3
"""Probability of opening a managed ledger without a handle instead of another action."""
DRAINS = 0.5
"""Probability of consuming all unacknowledged records of a subscription when idle."""
APPENDED_AGAIN_MAX = 20
"""Limit of appends by callbacks in a row; rarely reached."""
SETTLED_MS = 5000
"""Longest time of work without a caller if nothing fails: trims, cancelled calls."""

ACTIONS: dict[str, tuple[Callable[[Scene], None], float]] = {
    "append": (writing.append, 10),
    "add": (writing.add, 5),
    "append rows": (writing.append_rows, 3),
    "put rows": (writing.put_rows, 1),
    "flush": (writing.flush, 1),
    "await drained": (writing.await_drained, 1),
    "read": (reading.read, 6),
    "read cached": (reading.read_cached, 2),
    "read one": (reading.read_one, 1),
    "find": (reading.find, 1),
    "find before": (reading.find_before, 1),
    "ask stale": (reading.ask_stale, 1),
    "open": (lambda scene: changing.open_log(scene, scene.log()), 2),
    "close handle": (changing.close_handle, 0.7),
    "delete": (changing.delete, 0.7),
    "roll over": (changing.roll_over, 2),
    "remove ledgers": (changing.remove_ledgers, 2),
    "terminate": (changing.terminate, 0.4),
    "set property": (changing.set_property, 2),
    "reconfigure": (changing.reconfigure, 1),
    "set a timer": (changing.set_timer, 1),
    "compact": (compacting.compact, 5),
    "read compacted": (compacting.read_compacted, 3),
    "follow compacted": (following.follow, 4),
    "offload": (tiering.offload, 5),
    "delete primaries": (tiering.delete_primaries, 3),
    "open cursor": (cursors.open_cursor, 3),
    "close cursor": (cursors.close_cursor, 0.5),
    "delete cursor": (cursors.delete_cursor, 0.3),
    "open non-durable cursor": (cursors.open_non_durable, 0.5),
    "mark-delete": (acknowledging.mark_delete, 2),
    "delete entries": (acknowledging.delete, 4),
    "delete records": (acknowledging.delete_records, 2),
    "cursor read": (cursor_reading.read, 4),
    "cursor wait": (cursor_reading.read_or_wait, 2),
    "cursor replay": (cursor_reading.replay, 2),
    "rewind": (revising.rewind, 0.7),
    "seek": (revising.seek, 0.7),
    "skip": (revising.skip, 0.7),
    "clear backlog": (revising.clear_backlog, 0.4),
    "reset": (revising.reset, 1),
    "subscribe": (consuming.subscribe, 12),
    "leave": (consuming.leave, 3),
    "add permits": (consuming.add_permits, 8),
    "redeliver": (consuming.redeliver, 4),
    "acknowledge": (consuming.acknowledge, 14),
    "acknowledge upto": (consuming.acknowledge_upto, 5),
    "reset subscription": (consuming.reset_subscription, 2),
    "rewind subscription": (consuming.rewind_subscription, 1),
    "close subscription": (consuming.close_subscription, 0.5),
    "delete subscription": (consuming.delete_subscription, 0.5),
}
"""The actions and their usual weights. A seed favours some and omits others."""

SHARING = [
    name
    for name, (action, _) in ACTIONS.items()
    if action.__module__ in {consuming.__name__, following.__name__}
]
"""Actions that need entries that are record batches."""


class Ending(Enum):
    """How a life ends."""

    KILLED = "killed: written data survives"
    POWER_CUT = "power cut: unsynced data may be lost"
    CLOSED = "closed while idle"
    CLOSED_BUSY = "closed while busy"


class Crash(BaseException):
    """The process has ended."""


class Life:
    """One life; `run` is its main program."""

    def __init__(self, scene: Scene, ending: Ending) -> None:
        self._scene = scene
        self._ending = ending
        random, profile = scene.random, scene.profile
        self._is_unsettled = False
        """Whether the content is unknown: the engine had failed when the store took it over."""
        self._crash_step: int | None = None
        if ending in {Ending.KILLED, Ending.POWER_CUT}:
            self._crash_step = random.randrange(-1, profile.steps)
        names = [name for name in ACTIONS if profile.shares or name not in SHARING]
        self._actions = [ACTIONS[name][0] for name in names]
        self._weights = [profile.favours[name] for name in names]

    async def run(self) -> None:
        """Live."""
        scene = self._scene
        self._maybe_crash(-1)
        whole.check_listing(scene.engine)
        scene.store = await scene.open_store()
        await self._compare_all()
        for step in range(scene.profile.steps):
            if scene.store.is_fenced or self._is_unsettled:
                break
            scene.step = step
            self._maybe_crash(step)
            await self._do_something()
        await self._end()

    async def _do_something(self) -> None:
        scene, random = self._scene, self._scene.random
        dice = random.random()
        if dice < scene.profile.calm:
            await self._be_calm()
        elif dice < scene.profile.calm + scene.profile.takeovers:
            await self._take_over()
        elif (log := scene.ownerless()) is not None and random.random() < OPENS:
            changing.open_log(scene, log)
        else:
            random.choices(self._actions, self._weights)[0](scene)
        scene.model.observe_all()
        self._check_cursors()
        scene.model.check_row(scene.store, b"pair/0/left") if not scene.store.is_fenced else None
        if len(scene.tasks) > TASKS_MAX:
            await asyncio.wait(list(scene.tasks), return_when=asyncio.FIRST_COMPLETED)
        await self._pause()

    async def _pause(self) -> None:
        random = self._scene.random
        dice = random.random()
        if dice < 0.3:
            return
        if dice < 0.7:
            await asyncio.sleep(0)
        else:
            await self._scene.clock.sleep(random.choice((1, 1, 3, 10, 100, 1000)))

    def _check_cursors(self) -> None:
        for log in self._scene.model.logs.values():
            if log.handle is not None:
                cursors.check_cursors(log.handle)
                compacting.check_cursor(log.handle)

    # Idle checks

    async def _be_calm(self) -> None:
        """Stop all faults, let all operations end, then compare the whole state."""
        scene = self._scene
        scene.trace_line("calm")
        scene.faults.is_on = False
        await scene.rest()
        for log in scene.model.logs.values():
            if log.handle is not None and scene.random.random() < DRAINS:
                await consuming.drain(scene, log.handle)
                await following.catch_up(scene, log.handle)
        await scene.clock.sleep(SETTLED_MS)
        for _ in range(APPENDED_AGAIN_MAX):
            if not scene.store.is_fenced:
                await scene.store.flush()
        check(not scene.model.stream, "everything was flushed, and a caller still waits")
        if scene.store.is_fenced:
            self._check_fenced()
            return
        check(not scene.undrained, "the queue has room again, and a waiter was not called")
        whole.check_names(scene.model, scene.store)
        for log in scene.model.logs.values():
            handle = log.handle
            if handle is not None and not handle.is_stale and not handle.is_losing:
                await whole.check_log(scene.model, handle, scene.random)
                cursors.settle_cursors(handle)
                await compacting.check_compacted(scene.model, scene.store, handle)
                await self._check_trim(handle)
                await self._check_roll(handle)
        whole.check_rows(scene.model, scene.store)
        await tiering.check_tier(scene, scene.bucket)
        await scene.store.flush()
        whole.check_listing(scene.engine)
        check(
            scene.store.cached_bytes <= scene.profile.store.cache_bytes,
            "the cache exceeds its limit",
        )
        scene.faults.is_on = True

    async def _check_trim(self, handle: HandleModel) -> None:
        """Check that a trim without concurrent changes removes exactly what the rule says.

        Time passes meanwhile, and the trim of a rollover may run first.
        """
        ml, config = handle.ml, handle.ml.config
        infos, size = ml.ledgers, ml.total_size
        expected = [trimmed(infos, size, config, self._scene.clock.now_ms(), slowest(ml))]
        await ml.trim()
        expected.append(trimmed(infos, size, config, self._scene.clock.now_ms(), slowest(ml)))
        ids = {info.ledger_id for info in ml.ledgers}
        found = sum(info.ledger_id not in ids for info in infos)
        if found not in expected:
            raise InvariantBroken(f"{handle}: a trim removed {found} ledgers, expected {expected}")

    async def _check_roll(self, handle: HandleModel) -> None:
        """Check that a rollover without concurrent changes leaves a new, empty ledger, or none."""
        ml, before = handle.ml, handle.ml.ledgers
        if self._scene.random.random() < 0.7 or ml.state is LedgerState.TERMINATED:
            return
        await ml.roll_over()
        is_new = ml.ledgers[-1].ledger_id != before[-1].ledger_id
        check(is_new == bool(before[-1].entries), f"{handle}: after a rollover: {ml.ledgers[-1]}")
        check(not ml.ledgers[-1].entries, f"{handle}: the new ledger is not empty")

    def _check_fenced(self) -> None:
        """Check that a store that stopped itself had a reason, and knows it."""
        counts = self._scene.faults.counts
        reasons = ("write", "sync", "index", "checkpoint")
        check(any(counts[each] for each in reasons), "the store stopped itself without a reason")

    # Owners

    async def _compare_all(self) -> None:
        scene = self._scene
        scene.faults.is_on = False
        await recover(scene)
        whole.check_listing(scene.engine)
        compacting.check_nothing_unfinished(scene.engine)
        for log in scene.model.logs.values():
            if log.handle is not None:
                config = ledger_config(scene.random)
                log.handle.configs.append(config)
                log.handle.ml.reconfigure(config)
        scene.trace_line("recovered")
        scene.faults.is_on = True

    async def _take_over(self) -> None:
        """Another store of the same process takes the engine."""
        scene, before = self._scene, self._scene.store
        scene.trace_line("another store takes over")
        scene.faults.is_on = False
        scene.store = await scene.open_store()
        check(before.is_fenced, "two stores own one engine")
        scene.model.lose_all()
        scene.start("close the store before", before.close())
        if scene.engine.failure is not None:
            self._is_unsettled = True  # the outcome of pending writes is unknown until a restart
            return
        try:
            await self._compare_all()
        except Fenced:
            # A checkpoint of the previous store was still running, and failed.
            check(scene.engine.failure, "the new store was fenced without a reason")

    # Ending

    async def _end(self) -> None:
        scene = self._scene
        if scene.engine.failure is not None:
            await self._fence()
        if scene.store.is_fenced or self._ending is Ending.CLOSED:
            await self._be_calm()
            await self._close()
        elif self._ending is Ending.CLOSED_BUSY:
            await self._close()
        else:
            self._crash_soon()
            await scene.rest()
            await scene.clock.sleep(int(TIMEOUT_S) * 1000)

    async def _fence(self) -> None:
        """Check that a store on a failed engine stops itself at its next change."""
        scene = self._scene
        scene.model.row_choices.setdefault(b"put/0", {None}).add(b"last")
        try:
            await scene.store.put_rows([(b"put/0", b"last")])
        except Fenced:
            return
        raise InvariantBroken("a store continued after a failure that leaves an unknown state")

    async def _close(self) -> None:
        scene = self._scene
        scene.trace_line("close the store")
        scene.is_ending = True
        await asyncio.wait_for(consuming.close_all(scene), TIMEOUT_S)
        await asyncio.wait_for(following.close_all(scene), TIMEOUT_S)
        await asyncio.wait_for(scene.store.close(), TIMEOUT_S)
        check(not scene.model.stream, "the store is closed, and a caller still waits")
        await scene.rest()
        await scene.supervisor.close()

    def _maybe_crash(self, step: int) -> None:
        if step == self._crash_step:
            self._crash_soon()

    def _crash_soon(self) -> None:
        """Crash at a random moment from now on."""
        schedule = self._scene.schedule
        delay_us = schedule.work_us() * self._scene.random.choice((1, 3, 10))
        schedule.after(delay_us, lambda: schedule.interrupt(Crash()))


def trimmed(
    infos: Sequence[LedgerInfo],
    size: int,
    config: ManagedLedgerConfig,
    now_ms: int,
    slowest: Position,
) -> int:
    """Return how many ledgers retention removes: an independent version of `retention_plan`."""
    for count, info in enumerate(infos[:-1]):
        assert info.closed_ms is not None
        size -= info.size
        is_expired = 0 <= config.retention_ms < now_ms - info.closed_ms
        is_over_quota = 0 <= config.retention_bytes <= size
        is_unacknowledged = Position(info.ledger_id, info.entries - 1) > slowest
        if is_unacknowledged or not (is_expired or is_over_quota):
            return count
    return max(0, len(infos) - 1)


def slowest(ml: ManagedLedger) -> Position:
    """Return the durable mark-delete position of the slowest durable cursor."""
    durable = [*ml.cursors.values(), ml.compaction_cursor]
    writers = [cursor.writer for cursor in durable if cursor is not None]
    return min((each.durable_position for each in writers if each is not None), default=LATEST)

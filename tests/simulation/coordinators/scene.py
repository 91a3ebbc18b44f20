"""Scene: one life of a process with two brokers, what clients have sent, and checks.

Rule: a client draws everything from `random`, and asks a broker by `ask`: a shard that is attached
and does not move never refuses, and one that is not attached always does.
Must not know: which requests there are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.runtime.tasks import Supervisor
from tests.simulation.clock import SimulatedClock
from tests.simulation.coordinators.brokers import Broker, Cluster, Kind
from tests.simulation.coordinators.offsets_model import TransactionsModel, ValueModel
from tests.simulation.faults import Faults
from tests.simulation.invariants import InvariantBroken, check
from tests.simulation.loop import SimulatedLoop
from tests.simulation.schedule import Schedule

GROUPS = ("tool-a", "tool-b", "app-c", "app-d", "app-e")
"""Groups without members, which only commit."""
TRANSACTIONAL_IDS = ("copy-a", "copy-b", "copy-c")
MEMBERS = ("classic-a", "classic-b", "consumer-a", "consumer-b")
"""Groups of one member each, and of which protocol."""
TRIES = 12
RETRY_MS = (0, 1, 20, 300, 1500)
TIMEOUT_S = 900.0
"""Virtual time within which all requests must end when nothing fails."""
SETTLED_MS = 5_000
"""Virtual time within which the outcomes of transactions reach everything."""

RETRIABLE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""Errors with which a client tries again."""
ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class Member:
    """What a member knows of itself; `is_stored`: a generation with it was acknowledged."""

    group_id: str
    member_id: str = ""
    generation: int = -1
    is_joined: bool = False
    is_stable: bool = False
    is_stored: bool = False


@dataclass(slots=True)
class ClientState:
    """What clients have sent over all lives of the process."""

    values: dict[tuple[str, int], ValueModel] = field(default_factory=dict)
    transactions: dict[str, TransactionsModel] = field(
        default_factory=lambda: {name: TransactionsModel(name) for name in TRANSACTIONAL_IDS}
    )
    members: dict[str, Member] = field(
        default_factory=lambda: {name: Member(name) for name in MEMBERS}
    )
    sent: int = 0

    def value(self, group_id: str, partition: int) -> ValueModel:
        return self.values.setdefault((group_id, partition), ValueModel())

    def next_value(self) -> int:
        self.sent += 1
        return self.sent


@dataclass(slots=True, eq=False)
class Scene:
    """One life."""

    random: Random
    schedule: Schedule
    loop: SimulatedLoop
    clock: SimulatedClock
    faults: Faults
    store: LedgerStore
    supervisor: Supervisor
    cluster: Cluster
    clients: ClientState
    trace: Callable[[str], None]
    cancels: float
    tasks: dict["asyncio.Task[None]", str] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    """Clients that have a request under way."""
    step: int = -1
    is_over: bool = False

    # Requests

    def start(self, what: str, work: Coroutine[Any, Any, None], *, may_cancel: bool = True) -> None:
        """Start what may be cancelled at any time."""
        self.trace(what)
        task = self.loop.create_task(work)
        self.tasks[task] = what
        task.add_done_callback(self._ended)
        if may_cancel and self.random.random() < self.cancels:
            self.loop.call_later(self.schedule.work_us() / 1e6, task.cancel)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        what = self.tasks.pop(task)
        if task.cancelled():
            self.trace(f"cancelled: {what}")
        elif (error := task.exception()) is not None and not self.is_over:
            self.schedule.interrupt(error)

    async def rest(self) -> None:
        """Wait for the end of all requests and moves."""
        if self.tasks:
            _, waiting = await asyncio.wait(list(self.tasks), timeout=TIMEOUT_S)
            if waiting:
                names = sorted(self.tasks[task] for task in waiting)
                raise InvariantBroken(f"never ended: {', '.join(names)}")

    async def ask(
        self,
        kind: Kind,
        key: str,
        call: Callable[[Broker], Awaitable[tuple[ErrorCode, Answer]]],
        *,
        tries: int = TRIES,
        also: tuple[Kind, str] | None = None,
    ) -> tuple[ErrorCode, Answer] | None:
        """Ask the coordinator of a key, again while the errors are those of brokers.

        Args:
            kind: of the coordinator.
            key: a group id or a transactional id.
            call: makes the request, and returns its error and its answer.
            tries: how often it is asked.
            also: another kind and key whose coordinator the answer depends on.
        """
        for _ in range(tries):
            error, answer = await self._ask_once(kind, key, call, also)
            if error not in RETRIABLE:
                return error, answer
            if self.store.is_fenced:
                return None
            await self.clock.sleep(self.random.choice(RETRY_MS))
        return None

    async def _ask_once(
        self,
        kind: Kind,
        key: str,
        call: Callable[[Broker], Awaitable[tuple[ErrorCode, Answer]]],
        also: tuple[Kind, str] | None,
    ) -> tuple[ErrorCode, Answer]:
        ownerships = [self.cluster.ownership(*each) for each in ((kind, key), also) if each]
        moves = [each.moves for each in ownerships]
        is_moving = any(each.is_moving for each in ownerships)
        broker = self.cluster.serving(kind, key)
        if broker is None or self.random.random() < 0.1:
            broker = self.random.choice(self.cluster.brokers)
        refusal = broker.coordinator(kind).shards.error(key)
        is_owner = not refusal and all(
            not self.cluster.is_detached(broker, *each) for each in (also,) if each
        )
        error, answer = await call(broker)
        if self.cluster.is_closed:
            return error, answer  # the process ends, and refuses whatever it is asked
        has_moved = is_moving or moves != [each.moves for each in ownerships]
        if refusal:
            check(error == refusal, f"{kind} {key}: expected {refusal!r}, got {error!r}")
        elif is_owner and not has_moved:
            check(error not in ELSEWHERE, f"{kind} {key}: {error!r} of an attached shard")
        return error, answer

    # Checks

    def check_values(self) -> None:
        """Compare the offsets of groups that are attached now."""
        for (group_id, partition), model in self.clients.values.items():
            broker = self.cluster.serving("groups", group_id)
            if broker is not None:
                seen = self.cluster.committed(broker, group_id, partition)
                choices = model.choices()
                check(
                    seen in choices,
                    f"{group_id}-{partition}: offset {seen}, expected one of {choices}",
                )

    def check_completed(self) -> None:
        """Check that every outcome has reached its partitions and groups."""
        for broker in self.cluster.brokers:
            for record in broker.transactions.records():
                name = record.transactional_id
                check(not record.state.is_prepared, f"{name} is not completed: {record}")

    def settle(self) -> None:
        """Compare everything when nothing is under way and every shard is attached."""
        self.check_values()
        for (group_id, partition), model in self.clients.values.items():
            model.settle(self._offset(group_id, partition))
        for number, transactions in enumerate(self.clients.transactions.values()):
            partition = transactional_partition(number)
            seen = {group_id: self._offset(group_id, partition) for group_id in GROUPS}
            transactions.settle({key: value for key, value in seen.items() if value is not None})
        self._check_listing()
        self._check_forgotten()

    def _offset(self, group_id: str, partition: int) -> int | None:
        broker = self.cluster.serving("groups", group_id)
        check(broker, f"nobody serves {group_id}")
        assert broker is not None
        check(
            not self.cluster.is_unstable(broker, group_id, partition),
            f"{group_id}-{partition}: its transaction has ended, and the offset is pending",
        )
        return self.cluster.committed(broker, group_id, partition)

    def _check_listing(self) -> None:
        listed = [
            (one.group_id, broker)
            for broker in self.cluster.brokers
            for one in broker.groups.list_groups()
        ]
        for group_id, broker in listed:
            owner = self.cluster.serving("groups", group_id)
            check(owner is broker, f"{group_id} is listed where it is not served")
        names = [group_id for group_id, _ in listed]
        check(len(names) == len(set(names)), f"groups are listed twice: {names}")
        with_offsets = {
            group_id
            for group_id, partition in self.clients.values
            if self._offset(group_id, partition) is not None
        }
        check(with_offsets <= set(names), f"groups with offsets are not listed: {names}")

    def _check_forgotten(self) -> None:
        """Check that no broker remembers what it does not serve: it could write it again."""
        for broker in self.cluster.brokers:
            offsets = broker.groups.offsets._offsets
            known: list[tuple[Kind, Iterable[str]]] = [
                ("transactions", broker.transactions._records.durable),
                ("groups", broker.groups._table._records.durable),
                ("groups", offsets._committed.durable),
                ("groups", offsets._pending.durable),
            ]
            for kind, keys in known:
                for key in keys:
                    is_served = not self.cluster.is_detached(broker, kind, key)
                    check(is_served, f"{broker.name} remembers {key}, which it does not serve")


def transactional_partition(number: int) -> int:
    """Return the partition in which only one transactional id commits offsets."""
    return 10 + number

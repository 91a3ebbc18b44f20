"""A dispatcher over a real cursor, whose storage answers when a test says so."""

from collections.abc import Callable, Sequence

from kledger.ledger import (
    EARLIEST,
    Cursor,
    CursorState,
    LedgerStore,
    ManagedLedger,
    Position,
    StoreConfig,
)
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.dispatch.dispatcher import Dispatcher
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.model import (
    ConsumerOptions,
    Deliver,
    Delivery,
    RecordMask,
    SubscriptionType,
)
from kledger.subscriptions.visibility_filter import ALL_VISIBLE, VisibilityFilter
from tests.subscriptions.dispatch.builders import consumer, data_of, records_of
from tests.subscriptions.steps import Steps


class Scene:
    """A cursor over a managed ledger without a cache; every read of it asks the storage."""

    def __init__(self) -> None:
        self.engine = FaultyEngine(None)
        self.steps = Steps()
        self.clock = ManualClock(1_000_000)
        self.supervisor = Supervisor()
        self.timers = Timers(self.clock, self.supervisor)
        self.got: dict[int, list[Delivery]] = {}
        self.positions: list[Position] = []
        self.store: LedgerStore
        self.ledger: ManagedLedger
        self.cursor: Cursor

    async def open(self) -> None:
        config = StoreConfig(cache_bytes=0)
        self.store = await LedgerStore.open(
            None,
            engine=self.engine,
            clock=self.clock,
            config=config,
            threads=self.steps.threads(),
        )
        self.ledger = await self.store.open_managed_ledger("orders")
        self.cursor = await self.ledger.open_cursor("s", initial=EARLIEST)

    async def add(self, *keys: bytes | None, due_ms: int | None = None) -> Position:
        position = await self.ledger.add_entry(data_of(keys or (b"a",), due_ms))
        self.positions.append(position)
        return position

    def submit(self, keys: tuple[bytes | None, ...], due_ms: int | None) -> Position:
        """Append without waiting for it."""
        data = data_of(keys, due_ms)
        position = self.ledger.append_nowait(data, len(keys), 0, lambda place, error: None)
        self.positions.append(position)
        return position

    def dispatcher(
        self,
        kind: SubscriptionType,
        visibility_filter: VisibilityFilter = ALL_VISIBLE,
        /,
        **options: int,
    ) -> Dispatcher:
        return Dispatcher(
            self.cursor,
            kind,
            DispatchOptions(**options),
            clock=self.clock,
            timers=self.timers,
            supervisor=self.supervisor,
            visibility_filter=visibility_filter,
        )

    def join(
        self, dispatcher: Dispatcher, options: ConsumerOptions | None = None, permits: int = 99
    ) -> int:
        box: list[Delivery] = []
        number = dispatcher.add_consumer(options or consumer(), into(box))
        self.got[number] = box
        if permits:
            dispatcher.add_permits(number, permits)
        return number

    def shown(self, number: int) -> list[str]:
        """What a consumer got, as `entry.record`, entries by the order of their appends."""
        return [
            f"{self.positions.index(position)}.{index}"
            for delivery in self.got[number]
            for position, index in records_of(delivery)
        ]

    async def acknowledge(self, dispatcher: Dispatcher, *numbers: int) -> None:
        positions = [self.positions[each] for each in numbers]
        await self.cursor.delete(positions)
        dispatcher.acknowledged([RecordMask(each) for each in positions])

    def revise(self, dispatcher: Dispatcher, edit: Callable[[CursorState], object]) -> None:
        """End a revision that has started, as a subscription does."""

        def editor(state: CursorState) -> None:
            edit(state)
            dispatcher.clear()

        self.cursor.revision.end(editor)
        dispatcher.resume()

    async def close(self) -> None:
        self.steps.open()
        await self.supervisor.close()
        await self.store.close()


def into(box: list[Delivery]) -> Deliver:
    def deliver(deliveries: Sequence[Delivery]) -> None:
        box.extend(deliveries)

    return deliver

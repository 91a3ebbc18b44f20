"""TableView: a topic as a table, the last value of each key, kept up to date.

Rule: one task reads and applies, so a key never goes back to an older value. Records are applied in
bulk while nobody listens; with listeners or a strategy one by one, and every listener has returned
before the next record is applied. `refresh` takes the ends of all partitions at the call and waits
until they were read.
Must not know: links, batches.
Source: PIP-302, and Pulsar's TableView.
"""

import asyncio
import inspect
import logging
from collections.abc import (
    Awaitable,
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Sequence,
    ValuesView,
)
from contextlib import aclosing
from typing import Any, TypeAlias

from kledger.batches.errors import BatchError
from kledger.batches.reader import KeyValue, iterate_key_values
from kledger.ledger import Position
from kledger.native.client.close_once import CloseOnce, ClosesOnExit
from kledger.native.client.entry_reader import EntryReader, ReadEntry
from kledger.native.client.message_decoder import unreadable
from kledger.native.client.message_encoder import checked_key
from kledger.native.client.operations import ClientOperation
from kledger.native.client.services import ClientServices
from kledger.native.client.table_view_state import Refresh, TableViewState
from kledger.native.compaction_strategy import CompactionStrategy, check_strategy
from kledger.native.errors import AlreadyClosed, Full, InvalidArgument, KledgerError, NotAllowed
from kledger.native.message import Message
from kledger.runtime.signal import Signal
from kledger.subscriptions.entry_view import index_count
from kledger.subscriptions.model import ALL, Delivery

logger = logging.getLogger(__name__)

PREFETCHED_RECORDS = 10_000
"""How many records of each partition a view prefetches, at most."""
RECORDS_AT_ONCE_MAX = 1_000
"""Records that are applied before other tasks of the event loop run: about a millisecond."""
LISTENERS_MAX = 1_000
REFRESHES_MAX = 10_000
"""How many refreshes of one view may wait at a time; more raise `Full`."""

UpdateListener: TypeAlias = Callable[[bytes, bytes | None], object]
"""Called with a key and its new value; None: the key was removed. Plain, or a coroutine function;
what it raises is logged."""


class TableView(ClosesOnExit):
    """Made by `Client.create_table_view`; also an asynchronous context manager.

    What was read stays readable after `close`.
    """

    def __init__(
        self,
        services: ClientServices,
        reader: EntryReader,
        *,
        strategy: CompactionStrategy | None,
        keep_messages: bool,
        on_closed: Callable[["TableView"], None],
    ) -> None:
        """Prepare; `load` is called once.

        Args:
            services: the client's.
            reader: of the topic, from its beginning.
            strategy: None: the newest message of a key stays.
            keep_messages: whether the last message of each key is kept, not only its value.
            on_closed: called when this view is closed.

        Raises:
            InvalidArgument: the strategy is none.
        """
        if strategy is not None:
            check_strategy(strategy)
        self._services = services
        self._reader = reader
        self._strategy = strategy
        self._state = TableViewState(keeps_messages=keep_messages or strategy is not None)
        self._on_closed = on_closed
        self._on_load: Callable[[int], None] | None = None
        self._closing = CloseOnce(services.supervisor, f"table view of {reader.topic}")
        self._failure: KledgerError | None = None
        self._ended = Signal()
        self._listeners: list[_RegisteredListener] = []
        self._calling: set[asyncio.Task[Any] | None] = set()  # the tasks that run listeners
        self._refreshes: dict[Refresh, asyncio.Future[None]] = {}
        self._taking_ends: set[ClientOperation] = set()
        self._reading: asyncio.Task[None] | None = None
        self._applied_without_yield = 0
        self._applied = 0

    def __repr__(self) -> str:
        return f"TableView({self.topic!r}, {len(self)} keys)"

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._reader.topic

    # Reading the table

    def get(self, key: bytes | str) -> bytes | None:
        """Return the value of a key, None if it has none."""
        return self._state.values.get(checked_key(key))

    def get_message(self, key: bytes | str) -> Message | None:
        """Return the message that has set the value of a key, None if it has none.

        Raises:
            InvalidArgument: the view keeps no messages.
        """
        if self._state.messages is None:
            raise InvalidArgument("create the table view with keep_messages=True")
        return self._state.messages.get(checked_key(key))

    def __contains__(self, key: bytes | str) -> bool:
        return checked_key(key) in self._state.values

    def __len__(self) -> int:
        return len(self._state.values)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over a snapshot of the keys."""
        return iter(self.keys())

    def keys(self) -> KeysView[bytes]:
        """Return a snapshot of the keys."""
        return self._state.values.copy().keys()

    def values(self) -> ValuesView[bytes]:
        """Return a snapshot of the values."""
        return self._state.values.copy().values()

    def items(self) -> ItemsView[bytes, bytes]:
        """Return a snapshot of keys and values."""
        return self._state.values.copy().items()

    # Following the table

    async def for_each(self, fn: UpdateListener) -> None:
        """Call `fn(key, value)` for every key of a snapshot."""
        await self._call_for_each(self._call, fn, self.items())

    def listen(self, fn: UpdateListener) -> None:
        """Call `fn(key, value)` for every later update, in order; None: the key was removed.

        The next update waits until `fn` has returned, and so does a refresh. `fn` may use the view;
        to await its `refresh` would wait for itself and raises NotAllowed, but a task may do it if
        `fn` does not wait for that task.

        Raises:
            AlreadyClosed: the view is closed.
            Full: it has `LISTENERS_MAX` listeners.
        """
        self._add_listener(fn)

    async def for_each_and_listen(self, fn: UpdateListener) -> None:
        """Call `fn` for every key, and then for every later update, none lost and none twice.

        Returns when `fn` was called for every key; updates wait for that. Raises as `listen`.
        """
        items = self.items()
        registered = self._add_listener(fn)  # in one step with the snapshot
        try:
            async with registered.lock:
                await self._call_for_each(self._call_in_order, fn, items)
        except BaseException:
            self._listeners.remove(registered)
            raise

    async def refresh(self) -> None:
        """Return when everything is applied that was committed before this call.

        What follows the first open transaction of a partition is not waited for.

        Raises:
            AlreadyClosed: the view is closed, also while this call waits.
            NotAllowed: it is awaited in a listener of this view.
            TopicNotFound: the topic was deleted.
            Unavailable, Timeout: the server does not say where the partitions end.
            Full: `REFRESHES_MAX` refreshes wait.
        """
        self._check_usable()
        if asyncio.current_task() in self._calling:
            raise NotAllowed(f"a listener of the table view of {self.topic} awaits its refresh")
        if len(self._refreshes) + len(self._taking_ends) >= REFRESHES_MAX:
            raise Full(f"{REFRESHES_MAX} refreshes of the table view of {self.topic} wait")
        await self._wait_read(await self._take_ends())

    # Opening and closing

    async def wait_ended(self) -> None:
        """Return when the view is closed.

        Raises:
            KledgerError: an error has ended it, such as TopicNotFound when its topic was deleted.
        """
        while not self._closing.has_begun and self._failure is None:
            await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def load(self, on_load: Callable[[int], None] | None) -> None:
        """Connect, and read everything that is committed now; only for `Client`.

        The ends of the partitions are taken once, so that a busy producer does not keep the view
        loading.

        Args:
            on_load: called with the number of records read so far.
        """
        async with self._services.operations.run(f"view {self.topic}") as operation:
            operation.last_error = self._reader.last_error
            await self._reader.open()
        ends = await self._take_ends()
        self._check_usable()
        self._on_load = on_load
        self._reading = self._services.supervisor.spawn(self._read(), f"table view of {self.topic}")
        await self._wait_read(ends)
        self._on_load = None

    def fail(self, error: KledgerError) -> None:
        """End the view; pending and later refreshes raise this error."""
        if self._failure is None and not self._closing.has_begun:
            self._failure = error
            self._fail_waiting(error)

    async def close(self) -> None:
        """Stop following the topic; pending and later refreshes raise AlreadyClosed."""
        await self._closing.run(self._close)

    async def _close(self) -> None:
        self._fail_waiting(self._closed())
        if self._reading is not None:
            self._reading.cancel()
        try:
            await self._reader.close()
        finally:
            self._on_closed(self)

    def _closed(self) -> AlreadyClosed:
        return AlreadyClosed(f"the table view of {self.topic} is closed")

    def _check_usable(self) -> None:
        if self._closing.has_begun:
            raise self._closed()
        if self._failure is not None:
            raise self._failure

    def _fail_waiting(self, error: KledgerError) -> None:
        self._ended.notify()
        for operation in self._taking_ends:
            operation.stop(error)
        refreshes, self._refreshes = self._refreshes, {}
        for outcome in refreshes.values():
            if not outcome.done():
                outcome.set_exception(error)
                outcome.exception()  # a cancelled caller never retrieves it

    # Refreshing

    async def _take_ends(self) -> Sequence[Position]:
        """Return the ends of all partitions now; new partitions are read from now on."""
        async with self._services.operations.run(f"refresh {self.topic}") as operation:
            operation.last_error = self._reader.last_error
            self._taking_ends.add(operation)
            try:
                ends = await self._services.broker.committed_ends(self.topic)
                await self._reader.add_partitions_upto(len(ends))
                return ends
            finally:
                self._taking_ends.discard(operation)

    async def _wait_read(self, ends: Sequence[Position]) -> None:
        self._check_usable()
        refresh = self._state.begin_refresh(ends)
        if refresh.is_done:
            return
        outcome = asyncio.get_running_loop().create_future()
        self._refreshes[refresh] = outcome
        try:
            await outcome
        finally:
            self._refreshes.pop(refresh, None)

    def _note_read(self, partition: int, position: Position) -> None:
        for refresh in self._state.read_upto(partition, position):
            outcome = self._refreshes.get(refresh)
            if outcome is not None and not outcome.done():
                outcome.set_result(None)

    # Applying what is read

    async def _read(self) -> None:
        try:
            while True:
                step = await self._reader.read()
                if isinstance(step, ReadEntry):
                    await self._apply_entry(step)
                    self._note_read(step.partition, step.delivery.position.successor)
                else:
                    self._note_read(step.partition, step.position)
        except KledgerError as error:
            self.fail(error)

    async def _apply_entry(self, step: ReadEntry) -> None:
        """Apply the records of an entry. Raises Unreadable: it is damaged."""
        if self._state.messages is not None:
            await self._apply_messages(step)
            return
        partition, delivery = step
        decoder, topic = self._services.decoder, self.topic
        count, body = await decoder.open_body(delivery, topic=topic, partition=partition)
        is_whole = delivery.records == ALL or delivery.record_count == count
        if not is_whole and count < index_count(delivery.data):
            await self._apply_messages(step)  # indexes are those from before the compaction
            return
        try:
            parts = iterate_key_values(body, count, part_count=RECORDS_AT_ONCE_MAX)
            for records in parts if is_whole else _picked(parts, delivery):
                await self._apply_records(records)
                await self._yield_after(len(records))
        except BatchError as error:
            raise unreadable(
                delivery, error, topic=topic, partition=partition, link=None
            ) from error

    async def _apply_records(self, records: Sequence[KeyValue]) -> None:
        if not self._listeners:
            self._state.apply_all(records)
            return
        for key, value in records:
            if key is not None:
                self._state.apply(key, value)
                await self._call_listeners(key, value)

    async def _apply_messages(self, step: ReadEntry) -> None:
        partition, delivery = step
        decoder, topic = self._services.decoder, self.topic
        messages = decoder.decode_at_once(delivery, topic=topic, partition=partition, link=None)
        if messages is not None:
            await self._apply_all_messages(messages)
            return
        parts = decoder.decode_parts(delivery, topic=topic, partition=partition, link=None)
        async with aclosing(parts):
            async for part in parts:
                await self._apply_all_messages(part)

    async def _apply_all_messages(self, messages: Sequence[Message]) -> None:
        for message in messages:
            key = message.key
            if key is not None and not self._is_skipped(key, message):
                if self._state.messages is None:
                    self._state.apply(key, message.value)
                else:
                    self._state.apply_message(key, message)
                if self._listeners:
                    await self._call_listeners(key, message.value)
        await self._yield_after(len(messages))

    async def _yield_after(self, count: int) -> None:
        """Count applied records, and let other tasks run now and then."""
        self._applied += count
        if self._on_load is not None:
            self._call_on_load(self._on_load)
        self._applied_without_yield += count
        if self._applied_without_yield >= RECORDS_AT_ONCE_MAX:
            self._applied_without_yield = 0
            await self._services.clock.sleep(0)

    def _call_on_load(self, on_load: Callable[[int], None]) -> None:
        try:
            on_load(self._applied)
        except Exception:
            self._on_load = None
            logger.exception("on_load of the table view of %s failed", self.topic)

    def _is_skipped(self, key: bytes, current: Message) -> bool:
        """Ask the strategy, except for the first message of a key; an error applies the message."""
        strategy, messages = self._strategy, self._state.messages
        if strategy is None or messages is None or key not in messages:
            return False
        previous = messages[key]
        try:
            if not strategy.should_keep_left(previous, current):
                return False
        except Exception:
            logger.exception("the strategy of the table view of %s failed", self.topic)
            return False
        try:
            strategy.on_skip(key, previous, current)
        except Exception:
            logger.exception("on_skip of the table view of %s failed", self.topic)
        return True

    # Listeners

    def _add_listener(self, fn: UpdateListener) -> "_RegisteredListener":
        self._check_usable()
        if not callable(fn):
            raise InvalidArgument(f"a listener is a function, got {fn!r}")
        if len(self._listeners) >= LISTENERS_MAX:
            raise Full(f"the table view of {self.topic} has {LISTENERS_MAX} listeners")
        registered = _RegisteredListener(fn)
        self._listeners.append(registered)
        return registered

    async def _call_listeners(self, key: bytes, value: bytes | None) -> None:
        # A listener that is added meanwhile has seen this update in its snapshot, or is for later
        # ones: it is not called.
        for registered in tuple(self._listeners):
            async with registered.lock:
                await self._call_in_order(registered.fn, key, value or None)

    async def _call_for_each(
        self,
        call: Callable[[UpdateListener, bytes, bytes], Awaitable[None]],
        fn: UpdateListener,
        items: Iterable[tuple[bytes, bytes]],
    ) -> None:
        for number, (key, value) in enumerate(items, 1):
            await call(fn, key, value)
            if number % RECORDS_AT_ONCE_MAX == 0:
                await self._services.clock.sleep(0)

    async def _call_in_order(self, fn: UpdateListener, key: bytes, value: bytes | None) -> None:
        """Call a listener that later updates wait for, so that it must not await a refresh."""
        task = asyncio.current_task()
        if task in self._calling:  # of another listener, which calls this one
            await self._call(fn, key, value)
            return
        self._calling.add(task)
        try:
            await self._call(fn, key, value)
        finally:
            self._calling.discard(task)

    async def _call(self, fn: UpdateListener, key: bytes, value: bytes | None) -> None:
        try:
            result = fn(key, value)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            logger.warning("a listener of the table view of %s was cancelled", self.topic)
        except Exception:
            logger.exception("a listener of the table view of %s failed", self.topic)


class _RegisteredListener:
    """A listener.

    Attributes:
        lock: held while `fn` is called; the snapshot of `for_each_and_listen` is one call.
    """

    __slots__ = ("fn", "lock")

    def __init__(self, fn: UpdateListener) -> None:
        self.fn = fn
        self.lock = asyncio.Lock()


def _picked(parts: Iterable[list[KeyValue]], delivery: Delivery) -> Iterator[list[KeyValue]]:
    """Yield the records that a delivery names, part by part."""
    first = 0
    for part in parts:
        wanted = delivery.records >> first & (1 << len(part)) - 1
        yield [record for index, record in enumerate(part) if wanted >> index & 1]
        first += len(part)

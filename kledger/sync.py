"""The native client with blocking calls, for scripts and notebooks: `kledger.sync.connect(...)`.

Rule: the same classes, names and arguments as the asynchronous client; every method runs its
asynchronous counterpart on an event loop in a thread and waits for it. Several threads may share
one client. An interrupted call (Ctrl-C) is cancelled, and the client stays usable.
Must not know: what a call does.
"""

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, ItemsView, Iterator, KeysView, ValuesView
from concurrent.futures import Future
from threading import Lock, get_ident
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast

import kledger
import kledger.native.client.client
import kledger.native.client.consumer
import kledger.native.client.producer
import kledger.native.client.reader
import kledger.native.client.table_view
from kledger.embedding import EmbeddedClient as AsyncEmbeddedClient
from kledger.named_topics.model import NamedTopicOptions
from kledger.native.broker import SubscriptionStats, TopicStats
from kledger.native.channel_position import ChannelPosition
from kledger.native.client.client import Client as AsyncClient
from kledger.native.client.compaction import CompactionStatus
from kledger.native.client.named_topics.element import CommitResult
from kledger.native.client.named_topics.element import Element as AsyncElement
from kledger.native.client.named_topics.flow_control import FlowControl
from kledger.native.client.named_topics.named_topic import NamedTopic as AsyncNamedTopic
from kledger.native.client.named_topics.order_by import Orderable, OrderBy
from kledger.native.client.named_topics.publisher import Publisher as AsyncPublisher
from kledger.native.client.named_topics.publisher import PublishStatus
from kledger.native.client.named_topics.subscriber import Subscriber as AsyncSubscriber
from kledger.native.client.offload import OffloadStatus
from kledger.native.client.subscribe_options import DeadLetterPolicy
from kledger.native.client.table_view import UpdateListener
from kledger.native.compaction_strategy import CompactionStrategy
from kledger.native.errors import (
    AlreadyClosed,
    CompactionRunning,
    ConsumerAssign,
    ConsumerBusy,
    Full,
    FunctionFailed,
    IllegalArgument,
    IllegalState,
    InvalidArgument,
    KledgerError,
    NamespaceExists,
    NamespaceNotFound,
    NotAllowed,
    OffloadInProgress,
    SubscriptionFenced,
    SubscriptionNotFound,
    Timeout,
    TopicExists,
    TopicFull,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
    Unreadable,
)
from kledger.native.message import Message
from kledger.native.message_id import MessageId
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.loop_thread import LoopStopped, LoopThread, call_at_exit

__all__ = [
    "AlreadyClosed",
    "ChannelPosition",
    "Client",
    "CommitResult",
    "CompactionRunning",
    "CompactionStatus",
    "CompactionStrategy",
    "Consumer",
    "ConsumerAssign",
    "ConsumerBusy",
    "DeadLetterPolicy",
    "Element",
    "EmbeddedClient",
    "Full",
    "FunctionFailed",
    "IllegalArgument",
    "IllegalState",
    "InvalidArgument",
    "KledgerError",
    "Message",
    "MessageId",
    "NamedTopic",
    "NamespaceExists",
    "NamespaceNotFound",
    "NotAllowed",
    "OffloadInProgress",
    "OffloadStatus",
    "OrderBy",
    "Orderable",
    "Producer",
    "PublishStatus",
    "Publisher",
    "Reader",
    "Subscriber",
    "SubscriptionFenced",
    "SubscriptionNotFound",
    "SubscriptionStats",
    "TableView",
    "Timeout",
    "TopicExists",
    "TopicFull",
    "TopicNotFound",
    "TopicStats",
    "TopicTerminated",
    "Unavailable",
    "Unreadable",
    "connect",
    "embedded",
]

logger = logging.getLogger(__name__)

P = ParamSpec("P")
AsyncSide = TypeVar("AsyncSide")
AsyncSide_co = TypeVar("AsyncSide_co", covariant=True)
Iterated_co = TypeVar(
    "Iterated_co",
    bound=kledger.native.client.consumer.Consumer | kledger.native.client.reader.Reader,
    covariant=True,
)
Result = TypeVar("Result")
Made = TypeVar("Made")


class Runner(Protocol):
    """Runs coroutines on the event loop of a client."""

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end; return its result or raise its error."""
        ...


class _SyncProxy(Generic[AsyncSide_co]):
    """The blocking counterpart of an asynchronous object."""

    _async_side: AsyncSide_co
    _runner: Runner


class _SyncHandle(_SyncProxy[AsyncSide_co], ABC):
    """A producer, consumer, reader or table view; a context manager that closes it."""

    def __init__(self, async_side: AsyncSide_co, runner: Runner) -> None:
        """Called by `Client`."""
        self._async_side = async_side
        self._runner = runner

    @abstractmethod
    def close(self) -> None:
        """Close; may be repeated."""

    def __repr__(self) -> str:
        return f"<plain {self._async_side!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SyncIterator(_SyncHandle[Iterated_co]):
    """A consumer or reader; an iterator over its messages."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Return the next message; closing ends the iteration."""
        try:
            return self._runner.run(self._async_side.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


def _sync_method(
    method: Callable[Concatenate[AsyncSide, P], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[_SyncProxy[AsyncSide], P], Result]:
    """Return a method that runs an asynchronous one and waits for it."""

    @functools.wraps(method)
    def call(self: _SyncProxy[AsyncSide], /, *given: P.args, **named: P.kwargs) -> Result:
        return self._runner.run(method(self._async_side, *given, **named))

    return call


def _sync_factory(
    method: Callable[Concatenate[AsyncSide, P], Coroutine[Any, Any, Result]],
    plain: Callable[[Result, Runner], Made],
) -> Callable[Concatenate[_SyncProxy[AsyncSide], P], Made]:
    """Return the same for a method whose result becomes a blocking counterpart."""

    @functools.wraps(method)
    def call(self: _SyncProxy[AsyncSide], /, *given: P.args, **named: P.kwargs) -> Made:
        return plain(self._runner.run(method(self._async_side, *given, **named)), self._runner)

    return call


def _sync_future_method(
    method: Callable[Concatenate[AsyncSide, P], "asyncio.Future[Result]"],
) -> Callable[Concatenate[_SyncProxy[AsyncSide], P], "Future[Result]"]:
    """Return the same for a method that returns a future: here one of `concurrent.futures`."""

    @functools.wraps(method)
    def call(self: _SyncProxy[AsyncSide], /, *given: P.args, **named: P.kwargs) -> "Future[Result]":
        outcome: Future[Result] = Future()
        outcome.set_running_or_notify_cancel()  # a message in flight cannot be cancelled

        def settle(done: "asyncio.Future[Result]") -> None:
            if done.cancelled():
                outcome.set_exception(AlreadyClosed("the client is closed"))
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        async def begin() -> None:
            method(self._async_side, *given, **named).add_done_callback(settle)

        self._runner.run(begin())
        return outcome

    return call


class Producer(_SyncHandle[kledger.native.client.producer.Producer]):
    """Sends messages to a topic; see `kledger.Producer`."""

    send = _sync_method(kledger.native.client.producer.Producer.send)
    send_nowait = _sync_future_method(kledger.native.client.producer.Producer.send_nowait)
    flush = _sync_method(kledger.native.client.producer.Producer.flush)
    close = _sync_method(kledger.native.client.producer.Producer.close)

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._async_side.topic

    @property
    def producer_name(self) -> str | None:
        """The name given by the application, or None."""
        return self._async_side.producer_name


class Consumer(_SyncIterator[kledger.native.client.consumer.Consumer]):
    """Receives the messages of a topic through a subscription; see `kledger.Consumer`."""

    receive = _sync_method(kledger.native.client.consumer.Consumer.receive)
    batch_receive = _sync_method(kledger.native.client.consumer.Consumer.batch_receive)
    acknowledge = _sync_method(kledger.native.client.consumer.Consumer.acknowledge)
    acknowledge_cumulative = _sync_method(
        kledger.native.client.consumer.Consumer.acknowledge_cumulative
    )
    negative_acknowledge = _sync_method(
        kledger.native.client.consumer.Consumer.negative_acknowledge
    )
    redeliver_unacknowledged = _sync_method(
        kledger.native.client.consumer.Consumer.redeliver_unacknowledged
    )
    seek = _sync_method(kledger.native.client.consumer.Consumer.seek)
    get_last_message_id = _sync_method(kledger.native.client.consumer.Consumer.get_last_message_id)
    unsubscribe = _sync_method(kledger.native.client.consumer.Consumer.unsubscribe)
    close = _sync_method(kledger.native.client.consumer.Consumer.close)

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._async_side.topic

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
        return self._async_side.subscription

    @property
    def consumer_name(self) -> str:
        """The name of this consumer in its subscription."""
        return self._async_side.consumer_name


class Reader(_SyncIterator[kledger.native.client.reader.Reader]):
    """Reads a topic from a start position; see `kledger.Reader`."""

    read_next = _sync_method(kledger.native.client.reader.Reader.read_next)
    has_message_available = _sync_method(kledger.native.client.reader.Reader.has_message_available)
    seek = _sync_method(kledger.native.client.reader.Reader.seek)
    close = _sync_method(kledger.native.client.reader.Reader.close)

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._async_side.topic


class TableView(_SyncHandle[kledger.native.client.table_view.TableView]):
    """A topic as a table; see `kledger.TableView`.

    Listeners are plain functions; they run one at a time in a thread of this view. They may read
    the view, and may not wait for it: `refresh` and `for_each_and_listen` raise NotAllowed there. A
    strategy and `on_load` run on the client's event loop.
    """

    def __init__(
        self, async_side: kledger.native.client.table_view.TableView, runner: Runner
    ) -> None:
        super().__init__(async_side, runner)
        self._listener_pool = BlockingPool(1)
        self._listener_thread: int | None = None

    @property
    def topic(self) -> str:
        """The short name of the topic."""
        return self._async_side.topic

    def get(self, key: bytes | str) -> bytes | None:
        """Return the value of a key, None if it has none."""
        return self._async_side.get(key)

    def get_message(self, key: bytes | str) -> Message | None:
        """Return the message that has set the value of a key; see `kledger.TableView`."""
        return self._async_side.get_message(key)

    def __contains__(self, key: bytes | str) -> bool:
        return key in self._async_side

    def __len__(self) -> int:
        return len(self._async_side)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over a snapshot of the keys."""
        return iter(self._async_side)

    def keys(self) -> KeysView[bytes]:
        """Return a snapshot of the keys."""
        return self._async_side.keys()

    def values(self) -> ValuesView[bytes]:
        """Return a snapshot of the values."""
        return self._async_side.values()

    def items(self) -> ItemsView[bytes, bytes]:
        """Return a snapshot of keys and values."""
        return self._async_side.items()

    def for_each(self, fn: UpdateListener) -> None:
        """Call `fn(key, value)` for every key of a snapshot, in this thread."""
        for key, value in self.items():
            try:
                fn(key, value)
            except Exception:
                logger.exception("a listener of the table view of %s failed", self.topic)

    def listen(self, fn: UpdateListener) -> None:
        """Call `fn(key, value)` for every later update, in order; None: the key was removed."""

        async def add() -> None:
            self._async_side.listen(self._in_listener_thread(fn))

        self._runner.run(add())

    def for_each_and_listen(self, fn: UpdateListener) -> None:
        """Call `fn` for every key, and then for every later update, none lost and none twice."""
        self._check_waits_outside_of_listeners()
        self._runner.run(self._async_side.for_each_and_listen(self._in_listener_thread(fn)))

    def refresh(self) -> None:
        """Return when everything is applied that was committed before; see `kledger.TableView`."""
        self._check_waits_outside_of_listeners()
        self._runner.run(self._async_side.refresh())

    wait_ended = _sync_method(kledger.native.client.table_view.TableView.wait_ended)

    def close(self) -> None:
        """Stop following the topic, and wait for a listener that runs."""
        self._runner.run(self._async_side.close())
        if self._listener_thread != get_ident():
            self._listener_pool.close()

    def _in_listener_thread(
        self, fn: UpdateListener
    ) -> Callable[[bytes, bytes | None], Coroutine[Any, Any, None]]:
        def call(key: bytes, value: bytes | None) -> None:
            self._listener_thread = get_ident()
            fn(key, value)

        async def listener(key: bytes, value: bytes | None) -> None:
            await self._listener_pool.run(call, key, value)

        return listener

    def _check_waits_outside_of_listeners(self) -> None:
        if self._listener_thread == get_ident():
            raise NotAllowed(f"a listener of the table view of {self.topic} waits for the view")


class Element(_SyncProxy[AsyncElement]):
    """A received value with its coordinates; see `kledger.Element`."""

    def __init__(self, async_side: AsyncElement, runner: Runner) -> None:
        """Called by `Subscriber`."""
        self._async_side = async_side
        self._runner = runner
        self.value = async_side.value
        self.binary_value = async_side.binary_value
        self.channel = async_side.channel
        self.position = async_side.position
        self.timestamp_ms = async_side.timestamp_ms

    def __repr__(self) -> str:
        return repr(self._async_side)

    commit = _sync_method(AsyncElement.commit)


class Publisher(_SyncHandle[AsyncPublisher]):
    """Sends values to a named topic; see `kledger.Publisher`."""

    publish = _sync_method(AsyncPublisher.publish)
    flush = _sync_method(AsyncPublisher.flush)
    close = _sync_method(AsyncPublisher.close)

    @property
    def named_topic(self) -> "NamedTopic":
        """The topic."""
        return NamedTopic(cast(AsyncNamedTopic, self._async_side.named_topic), self._runner)

    @property
    def channel_count(self) -> int:
        """How many channels it sends to."""
        return self._async_side.channel_count

    @property
    def is_active(self) -> bool:
        """Whether it was neither closed nor stopped by a failure."""
        return self._async_side.is_active

    @property
    def flow_control(self) -> FlowControl:
        """Its limit of requests; its coroutines belong to the client's event loop."""
        return self._async_side.flow_control


class Subscriber(_SyncHandle[AsyncSubscriber]):
    """Receives the elements of a named topic; see `kledger.Subscriber`.

    Filters, converters, listeners and actions of `on_close` run on the client's event loop.
    """

    def receive(self) -> Element | None:
        """Return the next element; see `kledger.Subscriber`."""
        found = self._runner.run(self._async_side.receive())
        return None if found is None else Element(found, self._runner)

    def receive_batch(self, count: int) -> list[Element]:
        """Return the next 1 to `count` elements; see `kledger.Subscriber`."""
        found = self._runner.run(self._async_side.receive_batch(count))
        return [Element(each, self._runner) for each in found]

    def is_owner(self, channel: int) -> bool:
        """Return whether it owns a channel."""
        return self._async_side.is_owner(channel)

    def on_close(self, action: Callable[[], object]) -> None:
        """Call `action` once, when the subscriber is closed."""
        self._async_side.on_close(action)

    heartbeat = _sync_method(AsyncSubscriber.heartbeat)
    commit = _sync_method(AsyncSubscriber.commit)
    commit_all = _sync_method(AsyncSubscriber.commit_all)
    seek = _sync_method(AsyncSubscriber.seek)
    seek_all = _sync_method(AsyncSubscriber.seek_all)
    seek_to_head = _sync_method(AsyncSubscriber.seek_to_head)
    seek_to_tail = _sync_method(AsyncSubscriber.seek_to_tail)
    seek_and_commit = _sync_method(AsyncSubscriber.seek_and_commit)
    seek_and_commit_all = _sync_method(AsyncSubscriber.seek_and_commit_all)
    seek_to_tail_and_commit = _sync_method(AsyncSubscriber.seek_to_tail_and_commit)
    get_heads = _sync_method(AsyncSubscriber.get_heads)
    get_tails = _sync_method(AsyncSubscriber.get_tails)
    get_last_committed = _sync_method(AsyncSubscriber.get_last_committed)
    get_head = _sync_method(AsyncSubscriber.get_head)
    get_tail = _sync_method(AsyncSubscriber.get_tail)
    get_position = _sync_method(AsyncSubscriber.get_position)
    get_remaining_messages = _sync_method(AsyncSubscriber.get_remaining_messages)
    disconnect = _sync_method(AsyncSubscriber.disconnect)
    close = _sync_method(AsyncSubscriber.close)

    @property
    def named_topic(self) -> "NamedTopic":
        """The topic."""
        return NamedTopic(cast(AsyncNamedTopic, self._async_side.named_topic), self._runner)

    @property
    def group(self) -> str | None:
        """The name of its group; None: it is anonymous."""
        return self._async_side.group

    @property
    def id(self) -> int:
        """Its number in the group."""
        return self._async_side.id

    @property
    def is_active(self) -> bool:
        """Whether it is not closed."""
        return self._async_side.is_active

    @property
    def channels(self) -> frozenset[int]:
        """The channels that it owns."""
        return self._async_side.channels

    @property
    def channel_count(self) -> int:
        """How many channels the topic has."""
        return self._async_side.channel_count

    @property
    def flow_control(self) -> FlowControl:
        """Its limit of requests; its coroutines belong to the client's event loop."""
        return self._async_side.flow_control


class NamedTopic(_SyncProxy[AsyncNamedTopic]):
    """A named topic; see `kledger.NamedTopic`."""

    def __init__(self, async_side: AsyncNamedTopic, runner: Runner) -> None:
        """Called by `Client`."""
        self._async_side = async_side
        self._runner = runner

    def __repr__(self) -> str:
        return repr(self._async_side)

    create_publisher = _sync_factory(AsyncNamedTopic.create_publisher, Publisher)
    create_subscriber = _sync_factory(AsyncNamedTopic.create_subscriber, Subscriber)
    ensure_subscriber_group = _sync_method(AsyncNamedTopic.ensure_subscriber_group)
    destroy_subscriber_group = _sync_method(AsyncNamedTopic.destroy_subscriber_group)
    subscriber_groups = _sync_method(AsyncNamedTopic.subscriber_groups)
    describe_groups = _sync_method(AsyncNamedTopic.describe_groups)
    destroy = _sync_method(AsyncNamedTopic.destroy)

    @property
    def name(self) -> str:
        """The short name of the topic."""
        return self._async_side.name

    @property
    def channel_count(self) -> int:
        """How many channels it had when it was opened."""
        return self._async_side.channel_count

    @property
    def options(self) -> NamedTopicOptions:
        """What it is."""
        return self._async_side.options


class Client(_SyncProxy[AsyncClient]):
    """Creates producers, consumers, readers and table views; see `kledger.Client`.

    A context manager. Without `with`, the first call opens it; `close` or the end of the process
    closes it.
    """

    def __init__(self, async_side: AsyncClient) -> None:
        """Called by `connect` and `embedded`."""
        self._async_side = async_side
        self._runner = self
        self._thread: LoopThread | None = None
        self._opening = Lock()
        self._is_closed = False

    create_producer = _sync_factory(AsyncClient.create_producer, Producer)
    subscribe = _sync_factory(AsyncClient.subscribe, Consumer)
    create_reader = _sync_factory(AsyncClient.create_reader, Reader)
    create_table_view = _sync_factory(AsyncClient.create_table_view, TableView)
    named_topic = _sync_factory(AsyncClient.named_topic, NamedTopic)
    find_named_topic = _sync_factory(AsyncClient.find_named_topic, NamedTopic)
    named_topics = _sync_method(AsyncClient.named_topics)
    create_subscriber = _sync_factory(AsyncClient.create_subscriber, Subscriber)

    create_topic = _sync_method(AsyncClient.create_topic)
    delete_topic = _sync_method(AsyncClient.delete_topic)
    create_partitions = _sync_method(AsyncClient.create_partitions)
    topics = _sync_method(AsyncClient.topics)
    topic_stats = _sync_method(AsyncClient.topic_stats)
    terminate = _sync_method(AsyncClient.terminate)
    compact = _sync_method(AsyncClient.compact)
    compaction_status = _sync_method(AsyncClient.compaction_status)
    offload = _sync_method(AsyncClient.offload)
    offload_status = _sync_method(AsyncClient.offload_status)
    namespaces = _sync_method(AsyncClient.namespaces)
    create_namespace = _sync_method(AsyncClient.create_namespace)
    delete_namespace = _sync_method(AsyncClient.delete_namespace)
    policies = _sync_method(AsyncClient.policies)
    set_policies = _sync_method(AsyncClient.set_policies)
    position_of = _sync_method(AsyncClient.position_of)
    offset_of = _sync_method(AsyncClient.offset_of)
    subscriptions = _sync_method(AsyncClient.subscriptions)
    subscription_stats = _sync_method(AsyncClient.subscription_stats)
    create_subscription = _sync_method(AsyncClient.create_subscription)
    delete_subscription = _sync_method(AsyncClient.delete_subscription)
    reset_subscription = _sync_method(AsyncClient.reset_subscription)
    skip_messages = _sync_method(AsyncClient.skip_messages)
    clear_backlog = _sync_method(AsyncClient.clear_backlog)
    peek_messages = _sync_method(AsyncClient.peek_messages)
    metrics_clients = _sync_method(AsyncClient.metrics_clients)
    client_metrics = _sync_method(AsyncClient.client_metrics)

    def open(self) -> Self:
        """Connect, or start the embedded server, unless that is done; the first call also does it.

        Raises:
            AlreadyClosed: the client was closed; create another one.
            KledgerError: the server cannot be reached.
        """
        self._opened()
        return self

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the client's event loop. Raises AlreadyClosed, and its errors."""
        try:
            thread = self._opened()
        except BaseException:
            work.close()
            raise
        try:
            return thread.run(work)
        except LoopStopped:
            raise AlreadyClosed("the client is closed") from None

    def close(self) -> None:
        """Close everything that this client has created; may be repeated."""
        self._close(None, None, None)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(kind, error, traceback)

    def _opened(self) -> LoopThread:
        with self._opening:
            if self._is_closed:
                raise AlreadyClosed("the client is closed")
            if self._thread is None:
                self._thread = self._start()
            return self._thread

    def _start(self) -> LoopThread:
        import uvloop

        thread = LoopThread("kledger client", loop_factory=uvloop.new_event_loop)
        thread.start()
        try:
            thread.run(self._async_side.__aenter__())
        except BaseException:
            self._is_closed = True  # a client can be entered once
            thread.stop()
            raise
        _open_clients.add(self)
        return thread

    def _close(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._opening:
            thread, was_closed = self._thread, self._is_closed
            self._is_closed = True
        if thread is None or was_closed:
            return
        _open_clients.discard(self)
        try:
            thread.run(self._async_side.__aexit__(kind, error, traceback))
        finally:
            thread.stop()


class EmbeddedClient(Client):
    """A client with the whole server in this process; see `kledger.EmbeddedClient`."""

    _async_side: AsyncEmbeddedClient

    @property
    def kafka_address(self) -> str:
        """HOST:PORT of the Kafka listener; empty when there is none, or it is not open."""
        return self._async_side.kafka_address


def _sync_constructor(
    make: Callable[P, AsyncSide], plain: Callable[[AsyncSide], Made]
) -> Callable[P, Made]:
    """Return a function that creates the blocking counterpart of a client."""

    @functools.wraps(make)
    def call(*given: P.args, **named: P.kwargs) -> Made:
        return plain(make(*given, **named))

    return call


_open_clients: set[Client] = set()


def _close_open_clients() -> None:
    for each in tuple(_open_clients):
        each.close()


call_at_exit(_close_open_clients)

connect = _sync_constructor(kledger.connect, Client)
embedded = _sync_constructor(kledger.embedded, EmbeddedClient)

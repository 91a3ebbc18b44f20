"""What programs outside the repository are written against: names, parameters, defaults.

More may be offered; what stands here keeps its name, and its default.
"""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kledger
import kledger.ledger
import kledger.ledger.testing
import kledger.sync
from tests.tidy.sources import PACKAGES, ROOT

STORE = kledger.ledger.LedgerStore
LEDGER = kledger.ledger.ManagedLedger
CURSOR = kledger.ledger.Cursor
ENGINE = kledger.ledger.testing.FaultyEngine
HOLD = kledger.ledger.testing.Hold
CLOCK = kledger.ledger.testing.ManualClock

WAITING: dict[Callable[..., Any], str] = {
    # The ledger
    STORE.open_managed_ledger: "name, *, config=...",
    STORE.delete_managed_ledger: "name",
    STORE.close: "",
    LEDGER.add_entry: "data, *, message_count=1, max_timestamp_ms=None",
    LEDGER.read_entries: "start, count, max_position=LATEST",
    LEDGER.read_entry: "position",
    LEDGER.find_newest_matching: "predicate",
    LEDGER.roll_over: "",
    LEDGER.trim: "",
    LEDGER.truncate: "",
    LEDGER.terminate: "",
    LEDGER.set_property: "key, value",
    LEDGER.close: "",
    LEDGER.open_cursor: "name, *, initial=LATEST",
    LEDGER.new_non_durable_cursor: "start",
    LEDGER.delete_cursor: "name",
    CURSOR.mark_delete: "position, *, properties=None",
    CURSOR.delete: "positions",
    CURSOR.delete_batch_index: "position, indexes, batch_size",
    CURSOR.read: "count, *, max_bytes=None, max_position=LATEST",
    CURSOR.read_or_wait: "count, *, max_bytes=None, max_position=LATEST",
    CURSOR.replay: "positions",
    CURSOR.rewind: "",
    CURSOR.seek: "position, *, force=False",
    CURSOR.skip: "count",
    CURSOR.clear_backlog: "",
    CURSOR.reset: "position, *, force=False",
    CURSOR.reset_to_time: "timestamp_ms",
    CURSOR.close: "",
    HOLD.reached: "",
    CLOCK.sleep: "ms",
    # The native client
    kledger.Client.create_producer: (
        "topic, *, producer_name=None, batching=True, max_pending=1000"
    ),
    kledger.Producer.send: (
        "value, *, key=None, properties=None, event_timestamp=None, deliver_at=None,"
        "deliver_after_ms=None, sequence_id=None"
    ),
    kledger.Producer.flush: "",
    kledger.Producer.close: "",
    kledger.Client.subscribe: (
        "topic, subscription, *, consumer_type='exclusive', initial_position='latest',"
        "durable=True, consumer_name=None, priority_level=0, receiver_queue_size=1000,"
        "max_unacked=50000, max_unacked_subscription=200000, key_ranges=None,"
        "failover_delay_ms=1000, negative_ack_redelivery_delay_ms=60000, ack_timeout_ms=None,"
        "dead_letter=None"
    ),
    kledger.Consumer.receive: "*, timeout_ms=None",
    kledger.Consumer.batch_receive: "max_messages, *, timeout_ms=None",
    kledger.Consumer.__anext__: "",
    kledger.Consumer.acknowledge: "message",
    kledger.Consumer.acknowledge_cumulative: "message",
    kledger.Consumer.negative_acknowledge: "message",
    kledger.Consumer.redeliver_unacknowledged: "",
    kledger.Consumer.seek: "to, *, inclusive=True",
    kledger.Consumer.unsubscribe: "",
    kledger.Consumer.close: "",
    kledger.Consumer.get_last_message_id: "",
    kledger.Client.create_reader: "topic, start, *, inclusive=False",
    kledger.Reader.read_next: "*, timeout_ms=None",
    kledger.Reader.has_message_available: "",
    kledger.Reader.seek: "to, *, inclusive=True",
    kledger.Reader.close: "",
    kledger.Client.create_topic: "name, *, partitions=1, config=None",
    kledger.Client.delete_topic: "name",
    kledger.Client.create_partitions: "topic, count",
    kledger.Client.topics: "",
    kledger.Client.topic_stats: "name",
    kledger.Client.subscriptions: "topic",
    kledger.Client.subscription_stats: "topic, name",
    kledger.Client.reset_subscription: "topic, name, target",
    kledger.Client.skip_messages: "topic, name, n",
    kledger.Client.clear_backlog: "topic, name",
    kledger.Client.terminate: "topic",
    kledger.Client.offload: "topic, *, until=None",
    kledger.Client.offload_status: "topic",
    kledger.Client.namespaces: "",
    kledger.Client.create_namespace: "name",
    kledger.Client.delete_namespace: "name",
    kledger.Client.policies: "name",
    kledger.Client.set_policies: "name, policies",
    kledger.Client.position_of: "topic, partition, offset",
    kledger.Client.offset_of: "message_id, topic",
}
"""Methods that can wait, without `self`; `...` stands for a value that is made anew each time."""

PLAIN: dict[Callable[..., Any], str] = {
    kledger.connect: "url",
    kledger.embedded: "path, *, kafka=None, settings=None, engine=None, clock=None",
    kledger.sync.connect: "url",
    kledger.sync.embedded: "path, *, kafka=None, settings=None",
    kledger.Producer.send_nowait: WAITING[kledger.Producer.send],
    kledger.MessageId.to_bytes: "",
    kledger.MessageId.from_bytes: "data",
    kledger.DeadLetterPolicy: "max_redeliver_count, topic=None",
    STORE.open: "path, *, config=None, clock=None, engine=None",
    STORE.managed_ledger_names: "",
    LEDGER.next_valid_position: "position",
    LEDGER.previous_position: "position",
    LEDGER.is_valid_position: "position",
    LEDGER.has_entries_from: "position",
    LEDGER.number_of_entries: "start, end",
    LEDGER.estimated_backlog_bytes: "position",
    CURSOR.cancel_pending_read: "",
    CURSOR.batch_indexes: "position",
    kledger.ledger.CursorStateRevisionController.start: "",
    kledger.ledger.CursorStateRevisionController.end: "editor",
    kledger.ledger.CursorStateRevisionController.is_outdated: "number",
    CLOCK: "now_ms=0",
    CLOCK.advance: "ms",
    CLOCK.now_ms: "",
    CLOCK.monotonic_ms: "",
    ENGINE.hold_next: "op",
    ENGINE.fail_next: "op, error=None",
    ENGINE.delay_next: "op, ms",
    ENGINE.drop_unsynced: "",
    ENGINE.close: "",
    HOLD.release: "",
    HOLD.fail: "error=None",
}

PROPERTIES: dict[type, str] = {
    LEDGER: ("last_confirmed_entry first_position state total_size ledgers properties cursors"),
    CURSOR: (
        "mark_delete_position read_position individually_deleted backlog name is_durable is_active"
        " revision"
    ),
    kledger.ledger.CursorStateRevisionController: "number is_running",
    kledger.ledger.LedgerInfo: "ledger_id entries size closed_ms offloaded",
    kledger.ledger.Entry: "position data size",
    kledger.ledger.Position: "ledger_id entry_id",
    kledger.ledger.StoreConfig: "durability cache_bytes cursor_persist_per_second",
    kledger.ledger.ManagedLedgerConfig: (
        "max_entries_per_ledger max_bytes_per_ledger min_rollover_ms max_rollover_ms retention_ms"
        " retention_bytes"
    ),
    kledger.Message: (
        "id topic partition key value properties headers publish_timestamp event_timestamp"
        " redelivery_count offset producer_name"
    ),
    kledger.MessageId: "ledger_id entry_id batch_index partition offset",
    kledger.SubscriptionStats: (
        "type backlog unacknowledged consumers redelivery_rate revision_num is_under_revision"
    ),
    ENGINE: "calls",
    kledger.EmbeddedClient: "kafka_address",
    kledger.sync.EmbeddedClient: "kafka_address",
}

LEDGER_ERRORS = (
    "InvalidArgument Fenced AlreadyClosed Terminated NoMoreEntries NonRecoverable TooManyRequests"
    " StoreInUse ConcurrentWait ResetInProgress ConcurrentFind AlreadyMarkDeleted CursorNotFound"
    " Corrupt InvalidPosition"
)
CLIENT_ERRORS = (
    "TopicNotFound TopicExists ConsumerBusy ConsumerAssign AlreadyClosed Timeout InvalidArgument"
    " SubscriptionNotFound SubscriptionFenced TopicTerminated NotAllowed Unavailable Full"
)


def parameters_of(call: Callable[..., Any]) -> dict[str, tuple[bool, str | None]]:
    """Return of each parameter whether it must be named, and its default as text."""
    found = {}
    for each in inspect.signature(call).parameters.values():
        if each.name != "self":
            default = None if each.default is each.empty else repr(each.default)
            found[each.name] = (each.kind is each.KEYWORD_ONLY, default)
    return found


def promised(text: str) -> dict[str, tuple[bool, str | None]]:
    """Return the same of what the contract says."""
    (function,) = ast.parse(f"def f({text}): ...").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    defaults = [None] * (len(given.args) - len(given.defaults)) + [
        _text(each) for each in given.defaults
    ]
    found = {each.arg: (False, default) for each, default in zip(given.args, defaults, strict=True)}
    for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found[each.arg] = (True, None if value is None else _text(value))
    return found


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return repr(getattr(kledger.ledger, node.id))
    return repr(ast.literal_eval(node))


def deviations(call: Callable[..., Any], text: str) -> list[str]:
    """Tell what a call has not of what is promised."""
    mine = parameters_of(call)
    wrong = []
    for place, (name, (is_named, default)) in enumerate(promised(text).items()):
        if name not in mine:
            wrong.append(f"{name}: missing")
        elif is_named != mine[name][0] or (not is_named and list(mine).index(name) != place):
            wrong.append(f"{name}: at another place")
        # What is promised without a default may have one.
        elif default not in {None, mine[name][1], repr(...)}:
            wrong.append(f"{name}: {mine[name][1]}, expected {default}")
    more = [name for name, (_, default) in mine.items() if default is None]
    return wrong + [f"{each}: not promised" for each in more if each not in promised(text)]


@pytest.mark.parametrize("call", [*WAITING, *PLAIN], ids=lambda each: each.__qualname__)
def test_parameters_are_those_of_the_contract(call: Callable[..., Any]) -> None:
    assert [] == deviations(call, WAITING[call] if call in WAITING else PLAIN[call])


@pytest.mark.parametrize("call", WAITING, ids=lambda each: each.__qualname__)
def test_what_can_wait_is_a_coroutine(call: Callable[..., Any]) -> None:
    assert inspect.iscoroutinefunction(call)


@pytest.mark.parametrize("call", PLAIN, ids=lambda each: each.__qualname__)
def test_what_is_plain_is_none(call: Callable[..., Any]) -> None:
    assert not inspect.iscoroutinefunction(call)


@pytest.mark.parametrize("owner", PROPERTIES, ids=lambda each: each.__qualname__)
def test_properties_exist(owner: type) -> None:
    fields = {*dir(owner), *getattr(owner, "__annotations__", ()), *_set_in_init(owner)}
    assert set() == set(PROPERTIES[owner].split()) - fields


def _set_in_init(owner: type) -> set[str]:
    """Return the attributes that constructors set."""
    found = set()
    for each in owner.__mro__:
        init = each.__dict__.get("__init__")
        if inspect.isfunction(init):
            found |= set(init.__code__.co_names)
    return found


def test_errors_have_their_bases() -> None:
    for name in LEDGER_ERRORS.split():
        assert issubclass(getattr(kledger.ledger, name), kledger.ledger.LedgerError), name
    for name in CLIENT_ERRORS.split():
        assert issubclass(getattr(kledger, name), kledger.KledgerError), name
    assert issubclass(kledger.ledger.InvalidArgument, ValueError)
    assert issubclass(kledger.Timeout, TimeoutError)


def test_clock_of_the_machine_and_the_manual_one_are_clocks() -> None:
    clocks: list[kledger.ledger.Clock] = [kledger.ledger.SystemClock(), CLOCK(now_ms=5)]
    assert clocks[0].now_ms() > clocks[1].now_ms() == 5


async def test_store_leaves_an_engine_open_that_it_was_given() -> None:
    engine = ENGINE(None)
    for expected in (0, 1):
        async with STORE.open(None, engine=engine, clock=kledger.ledger.SystemClock()) as store:
            ledger = await store.open_managed_ledger("m")
            found = await ledger.read_entries(kledger.ledger.EARLIEST, 10)
            assert [b"v"] * expected == [each.data for each in found]
            await ledger.add_entry(b"v")
    engine.close()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    assert (Path(ROOT) / package / "py.typed").is_file()


def test_deviation_is_found() -> None:
    def call(a: int, *, b: int = 1, c: int) -> None: ...

    assert [] == deviations(call, "a, *, b=1, c")
    assert ["c: not promised"] == deviations(call, "a, *, b=1")
    assert ["b: 1, expected 2", "d: missing"] == deviations(call, "a, *, b=2, c, d=None")
    assert ["b: at another place"] == deviations(call, "a, b=1, *, c")

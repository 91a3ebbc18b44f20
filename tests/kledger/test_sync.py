"""The client as plain calls: what is its own; what a call does is in tests/native/contract."""

import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kledger
import kledger.sync
from kledger.testing import ServerThread

SOON_MS = 60_000
SOON_SECONDS = SOON_MS / 1000

INTERRUPTED = """
import asyncio, signal, sys, threading, traceback, kledger.sync

with kledger.sync.embedded(None) as client:
    consumer = client.subscribe("orders", "s")

    def interrupt():
        main = threading.main_thread().ident
        while "in _awaited" not in "".join(traceback.format_stack(sys._current_frames()[main])):
            client.run(asyncio.sleep(0))
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        consumer.receive()
    except KeyboardInterrupt:
        client.create_producer("orders").send(b"v")
        print("interrupted", consumer.receive(timeout_ms=60_000).value)
"""

LEFT_OPEN = """
import kledger.sync, sys
client = kledger.sync.embedded(sys.argv[1])
print(client.create_producer("orders").send(b"v").offset)
"""


@pytest.fixture(params=["embedded", "remote"])
def client(request: pytest.FixtureRequest) -> Iterator[kledger.sync.Client]:
    if request.param == "embedded":
        with kledger.sync.embedded(None) as embedded:
            yield embedded
    else:
        with (
            ServerThread(native="127.0.0.1:0") as server,
            kledger.sync.connect(f"kledger://{server.native_address}") as connected,
        ):
            yield connected


def test_sent_messages_are_received(client: kledger.sync.Client) -> None:
    client.create_topic("orders", partitions=1)
    with client.create_producer("orders", producer_name="p") as producer:
        sent = [producer.send(b"%d" % n, key="k", properties={"n": str(n)}) for n in range(3)]
        promised = producer.send_nowait(b"3")
        assert 3 == promised.result(SOON_SECONDS).offset
        assert ("orders", "p") == (producer.topic, producer.producer_name)
    with client.subscribe("orders", "s", initial_position="earliest") as consumer:
        first = consumer.receive(timeout_ms=SOON_MS)
        assert (sent[0], b"0", b"k", {"n": "0"}) == (
            first.id, first.value, first.key, first.properties
        )  # fmt: skip
        consumer.acknowledge(first)
        rest = consumer.batch_receive(3, timeout_ms=SOON_MS)
        assert [b"1", b"2", b"3"] == [each.value for each in rest]
        consumer.acknowledge_cumulative(rest[-1])
        with pytest.raises(kledger.sync.Timeout):
            consumer.receive(timeout_ms=0)
        consumer.seek("earliest")
        assert first.id == consumer.receive(timeout_ms=SOON_MS).id
        assert ("orders", "s") == (consumer.topic, consumer.subscription)
        assert consumer.consumer_name
    with client.create_reader("orders", sent[1], inclusive=True) as reader:
        assert reader.has_message_available()
        assert b"1" == reader.read_next(timeout_ms=SOON_MS).value
        assert "orders" == reader.topic
    assert sent[2] == client.position_of("orders", 0, 2)
    assert 0 == client.subscription_stats("orders", "s").unacknowledged


def test_table_view_follows_a_topic(client: kledger.sync.Client) -> None:
    client.create_topic("orders", partitions=3)
    producer = client.create_producer("orders")
    producer.send(b"1", key="a")
    with client.create_table_view("orders") as view:
        assert (b"1", 1, [b"a"]) == (view.get("a"), len(view), list(view.keys()))
        seen: list[tuple[bytes, bytes | None, bytes | None]] = []
        errors: list[Exception] = []

        def listener(key: bytes, value: bytes | None) -> None:
            seen.append((key, value, view.get(key)))
            for waiting in (view.refresh, lambda: view.for_each_and_listen(print)):
                try:
                    waiting()
                except kledger.NotAllowed as error:
                    errors.append(error)

        view.for_each_and_listen(listener)
        later: list[bytes] = []
        view.listen(lambda key, _: later.append(key))
        producer.send(b"2", key="a")
        producer.send(None, key="a")
        view.refresh()
        assert [(b"a", b"1", b"1"), (b"a", b"2", b"2"), (b"a", None, None)] == seen
        assert 6 == len(errors)
        assert [b"a", b"a"] == later
        assert "a" not in view
        assert [] == list(view)
    with pytest.raises(kledger.AlreadyClosed):
        view.refresh()


def test_listener_of_a_table_view_may_close_it(client: kledger.sync.Client) -> None:
    client.create_topic("orders")
    view = client.create_table_view("orders")
    closed = threading.Event()

    def listener(_key: bytes, _value: bytes | None) -> None:
        view.close()
        closed.set()

    view.listen(listener)
    client.create_producer("orders").send(b"1", key="a")
    assert closed.wait(SOON_SECONDS)
    view.close()


def test_iteration_ends_with_what_is_iterated_over(client: kledger.sync.Client) -> None:
    producer = client.create_producer("orders")
    for each in (
        client.subscribe("orders", "s"), client.create_reader("orders", "earliest")
    ):  # fmt: skip
        producer.send(b"a")
        for message in each:
            assert b"a" == message.value
            each.close()


def test_several_threads_share_a_client(client: kledger.sync.Client) -> None:
    producer = client.create_producer("orders")
    consumer = client.subscribe("orders", "s", consumer_type="shared")
    threads = [threading.Thread(target=lambda n=n: producer.send(b"%d" % n)) for n in range(20)]
    for each in threads:
        each.start()
    found = {consumer.receive(timeout_ms=SOON_MS).value for _ in range(20)}
    for each in threads:
        each.join(SOON_SECONDS)
    assert {b"%d" % n for n in range(20)} == found


def test_waiting_call_fails_when_the_client_is_closed(client: kledger.sync.Client) -> None:
    consumer = client.subscribe("orders", "s")
    problems: list[type[BaseException]] = []

    def receive() -> None:
        try:
            consumer.receive()
        except kledger.AlreadyClosed as error:
            problems.append(type(error))

    waiting = threading.Thread(target=receive)
    waiting.start()
    client.close()
    waiting.join(SOON_SECONDS)
    assert [kledger.AlreadyClosed] == problems


def test_nothing_works_behind_the_end(client: kledger.sync.Client) -> None:
    producer = client.create_producer("orders")
    client.close()
    client.close()
    for call in (
        client.topics, client.open, lambda: producer.send(b"v"), lambda: producer.send_nowait(b"v")
    ):  # fmt: skip
        with pytest.raises(kledger.AlreadyClosed, match="client is closed"):
            call()


def test_errors_are_those_of_the_asynchronous_client(client: kledger.sync.Client) -> None:
    with pytest.raises(kledger.TopicNotFound):
        client.topic_stats("missing")
    producer = client.create_producer("orders", max_pending=1)
    with pytest.raises(kledger.InvalidArgument):
        producer.send_nowait("text")  # type: ignore[arg-type]


def test_first_call_connects_and_a_client_that_cannot_is_closed() -> None:
    client = kledger.sync.embedded(None, kafka="127.0.0.1:0")
    assert "" == client.kafka_address
    assert [] == client.topics()
    assert client.kafka_address
    client.close()
    lost = kledger.sync.connect("kledger://127.0.0.1:1")
    with pytest.raises(kledger.Unavailable):
        lost.open()
    with pytest.raises(kledger.AlreadyClosed):
        lost.topics()
    kledger.sync.embedded(None).close()


def test_bad_arguments_are_refused_at_once() -> None:
    with pytest.raises(kledger.InvalidArgument):
        kledger.sync.connect("nowhere")


def test_interrupted_call_takes_nothing_along() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "interrupted b'v'\n" == done.stdout


def test_client_that_is_not_closed_is_closed_at_the_end_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEFT_OPEN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ("0\n", "") == (done.stdout, done.stderr)
    with kledger.sync.embedded(tmp_path) as client:
        assert ["orders"] == client.topics()


@pytest.mark.parametrize(
    "name",
    [
        "Client",
        "EmbeddedClient",
        "Producer",
        "Consumer",
        "Reader",
        "TableView",
        "NamedTopic",
        "Publisher",
        "Subscriber",
    ],
)
def test_classes_have_the_methods_of_their_twins(name: str) -> None:
    hidden = {
        "open",
        "load",
        "fail",
        "partitions",
        "queued",
        "send_again",
        "restart_at",
        "last_error",
        "partition_count",
        "send_to",
        "is_read_upto",
        "reads_compacted",
    }
    async_side, plain = getattr(kledger, name), getattr(kledger.sync, name)
    for method, member in inspect.getmembers(async_side):
        if method.startswith("_") or method in hidden:
            continue
        mine = getattr(plain, method)
        assert not inspect.iscoroutinefunction(mine), method
        if callable(member) and method != "close":
            assert _parameters(member) == _parameters(mine), method


def test_every_name_exists() -> None:
    assert set(kledger.__all__) == set(kledger.sync.__all__)
    assert all(hasattr(kledger.sync, each) for each in kledger.sync.__all__)


def _parameters(method: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())

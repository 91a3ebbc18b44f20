"""Tasks write once, whatever is sent again or done again, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kledger.broker_client.broker_connections import KafkaFailed
from kledger.spark.data_source import BatchReader
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.sink import TaskWritten, end_all, write_task
from kledger.spark.sink_options import SinkOptions, read_sink_options
from kledger.spark.source_options import InvalidOption, read_options
from kledger.spark.transaction import abort_open
from kledger.testing import FaultyServer

WAIT_S = 60
NAME = "w-"
COLUMNS = {"key": "string", "value": "string"}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A server in memory with a topic of two partitions."""
    with FaultyServer() as running:
        admin = AdminClient({"bootstrap.servers": running.kafka_address})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(WAIT_S)
        yield running


def options(server: FaultyServer) -> SinkOptions:
    return read_sink_options({"servers": server.kafka_address, "topic": "orders"}, COLUMNS)


def rows(*numbers: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist(
        [{"key": f"k{number}", "value": f"{number}"} for number in numbers],
        schema=pa.schema([("key", pa.string()), ("value", pa.string())]),
    )


def visible(server: FaultyServer) -> list[int]:
    """The values of committed records."""
    given = {"servers": server.kafka_address, "subscribe": "orders"}
    reader = BatchReader(read_options(given))
    return sorted(
        int(row["value"])
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    )


def write(
    server: FaultyServer, *numbers: int, split: int = 0, attempt: int = 0, batch: int | None = None
) -> TaskWritten:
    mark = None if batch is None else batch + 1
    return write_task(
        options(server), rows(*numbers), name=NAME, split=split, attempt=attempt, mark=mark
    )


def end(server: FaultyServer, *messages: TaskWritten | None, is_commit: bool = True) -> None:
    end_all(options(server), list(messages), name=NAME, is_commit=is_commit)


def test_rows_are_visible_when_the_driver_has_committed_all_tasks(server: FaultyServer) -> None:
    messages = [write(server, *range(n, 100, 3), split=n) for n in range(3)]
    assert [] == visible(server)
    end(server, *messages)
    assert list(range(100)) == visible(server)


def test_rows_are_visible_when_the_end_returns(server: FaultyServer) -> None:
    """A coordinator answers EndTxn before it has written the markers that readers wait for."""
    message = write(server, *range(20), batch=0)
    outcome = server.hold_next("commit")
    with ThreadPoolExecutor(1) as driver:
        ending = driver.submit(end, server, message)
        outcome.wait_reached()
        markers, first_list = server.hold_next("commit"), server.hold_next("ListTransactions")
        outcome.release()
        markers.wait_reached()
        first_list.wait_reached()  # of transactions that are open
        second_list = server.hold_next("ListTransactions")
        first_list.release()
        second_list.wait_reached()  # of those that end
        assert [] == visible(server)
        second_list.release()
        markers.release()
        ending.result(WAIT_S)
    assert list(range(20)) == visible(server)


def test_rows_of_an_aborted_write_are_never_visible(server: FaultyServer) -> None:
    messages = [write(server, 1, 2), None, TaskWritten(None, NAME)]
    end(server, *messages, is_commit=False)
    end(server, write(server, 3))
    assert [3] == visible(server)


@pytest.mark.parametrize(
    "api",
    ["Produce", "InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit", "FindCoordinator",
     "OffsetFetch", "AddOffsetsToTxn", "Metadata", "ListTransactions"],
)  # fmt: skip
def test_lost_connection_loses_and_doubles_nothing(server: FaultyServer, api: str) -> None:
    server.fail_next(api)
    message = write(server, *range(20), batch=0)
    server.fail_next("EndTxn")
    end(server, message)
    assert list(range(20)) == visible(server)


def test_batch_that_was_committed_is_not_written_again(server: FaultyServer) -> None:
    """The driver died behind the commit: the same batch comes once more, by the same split."""
    end(server, write(server, 1, 2, batch=0))
    again = write(server, 1, 2, batch=0)
    assert again.handle is None
    end(server, again, write(server, 3, batch=1))
    assert [1, 2, 3] == visible(server)


def test_batch_that_was_not_committed_is_written_again(server: FaultyServer) -> None:
    """The driver died before the commit; what it left open is aborted by the next attempt."""
    lost = write(server, 1, 2, batch=0)
    end(server, write(server, 1, 2, batch=0))
    assert [1, 2] == visible(server)
    with pytest.raises(KafkaFailed, match="end of transaction w-0-0"):
        end(server, lost)
    assert [1, 2] == visible(server)


def test_some_splits_were_committed_when_the_driver_died(server: FaultyServer) -> None:
    first = [write(server, n, batch=0, split=n) for n in range(4)]
    end(server, *first[:2])
    again = [write(server, n, batch=0, split=n) for n in range(4)]
    assert [True, True, False, False] == [each.handle is None for each in again]
    end(server, *again)
    assert [0, 1, 2, 3] == visible(server)


def test_attempt_that_was_killed_is_aborted_with_the_end_of_the_write(
    server: FaultyServer,
) -> None:
    """Speculation: nobody but the driver can end the slower attempt; readers would wait for it."""
    for attempt in (0, 7):
        write(server, 7, attempt=attempt)
    end(server, write(server, 7, attempt=1), write(server, 8, split=1))
    assert [7, 8] == visible(server)


def test_other_writes_are_left_alone(server: FaultyServer) -> None:
    other = write_task(options(server), rows(5), name="w-other-", split=0, attempt=0)
    with KafkaClient(server.kafka_address) as client:
        abort_open(client, "w-1-", timeout_ms=60_000)
        abort_open(client, "w-other-0-", timeout_ms=60_000, but="w-other-0-0")
    end_all(options(server), [other], name="w-other-", is_commit=True)
    assert [5] == visible(server)


def test_failure_is_raised_as_it_is(server: FaultyServer) -> None:
    """Before anything was written there is nothing to abort, and nothing hides the error."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(1)
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted"):
        write_task(options(server), failing(), name=NAME, split=0, attempt=0)
    missing = read_sink_options({"servers": server.kafka_address, "topic": "nope"}, COLUMNS)
    with pytest.raises(KafkaFailed, match="topic nope: UNKNOWN_TOPIC_OR_PARTITION"):
        write_task(missing, rows(1), name=NAME, split=0, attempt=0)
    assert [] == visible(server)


@pytest.mark.parametrize(
    ("given", "columns", "message"),
    [
        ({}, {"key": "string"}, "column 'value' is missing; there are key"),
        ({}, {"value": "int"}, "column 'value': expected string or binary, got int"),
        ({"topic": None}, COLUMNS, "option 'topic' is missing, and there is no column"),
        ({"tpoic": "x"}, COLUMNS, "unknown option 'tpoic'; the known ones are"),
        ({"kafka.compression.type": "rar"}, COLUMNS, "expected one of none, gzip"),
        ({"kafka.transaction.timeout.ms": "1s"}, COLUMNS, "expected milliseconds, got '1s'"),
    ],
)
def test_wrong_options_are_refused(
    given: dict[str, str | None], columns: dict[str, str], message: str
) -> None:
    merged = {"servers": "h:1", "topic": "t", **given}
    present = {name: value for name, value in merged.items() if value is not None}
    with pytest.raises(InvalidOption, match=message):
        read_sink_options(present, columns)

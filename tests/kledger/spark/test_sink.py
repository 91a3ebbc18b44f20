"""Tasks write once, whatever is sent again or done again, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kledger.spark.data_source import BatchReader
from kledger.spark.kafka_client import KafkaFailed
from kledger.spark.sink import TaskWritten, end_all, write_task
from kledger.spark.sink_options import SinkOptions, read_sink_options
from kledger.spark.source_options import InvalidOption, read_options
from kledger.testing import FaultyServer

WAIT_S = 60
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
    server: FaultyServer, *numbers: int, attempt: int = 0, batch: int | None = None,
    name: str = "w-0",
) -> TaskWritten:  # fmt: skip
    mark = None if batch is None else (name, batch + 1)
    return write_task(options(server), rows(*numbers), name=name, attempt=attempt, mark=mark)


def test_rows_are_visible_when_the_driver_has_committed_all_tasks(server: FaultyServer) -> None:
    messages = [write(server, *range(n, 100, 3), name=f"w-{n}") for n in range(3)]
    assert [] == visible(server)
    end_all(options(server), messages, is_commit=True)
    assert list(range(100)) == visible(server)


def test_commit_returns_when_the_rows_are_visible(server: FaultyServer) -> None:
    """A coordinator answers EndTxn before it has written the markers that readers wait for."""
    message = write(server, *range(20), batch=0)
    outcome = server.hold_next("commit")
    with ThreadPoolExecutor(1) as driver:
        ending = driver.submit(end_all, options(server), [message], is_commit=True)
        outcome.wait_reached()
        markers, repeated = server.hold_next("commit"), server.hold_next("EndTxn")
        outcome.release()
        markers.wait_reached()
        repeated.wait_reached()
        assert [] == visible(server)
        repeated.release()
        markers.release()
        ending.result(WAIT_S)
    assert list(range(20)) == visible(server)


def test_rows_of_an_aborted_write_are_never_visible(server: FaultyServer) -> None:
    messages = [write(server, 1, 2), None, TaskWritten(None)]
    end_all(options(server), messages, is_commit=False)
    end_all(options(server), [write(server, 3)], is_commit=True)
    assert [3] == visible(server)


@pytest.mark.parametrize(
    "api",
    ["Produce", "InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit", "FindCoordinator",
     "OffsetFetch", "AddOffsetsToTxn", "Metadata"],
)  # fmt: skip
def test_lost_connection_loses_and_doubles_nothing(server: FaultyServer, api: str) -> None:
    server.fail_next(api)
    message = write(server, *range(20), batch=0)
    server.fail_next("EndTxn")
    end_all(options(server), [message], is_commit=True)
    assert list(range(20)) == visible(server)


def test_batch_that_was_committed_is_not_written_again(server: FaultyServer) -> None:
    """The driver died behind the commit: the same batch comes once more, by the same split."""
    end_all(options(server), [write(server, 1, 2, batch=0)], is_commit=True)
    again = write(server, 1, 2, batch=0)
    assert again.handle is None
    end_all(options(server), [again, write(server, 3, batch=1)], is_commit=True)
    assert [1, 2, 3] == visible(server)


def test_batch_that_was_not_committed_is_written_again(server: FaultyServer) -> None:
    """The driver died before the commit; what it left open is aborted by the next attempt."""
    lost = write(server, 1, 2, batch=0)
    end_all(options(server), [write(server, 1, 2, batch=0)], is_commit=True)
    assert [1, 2] == visible(server)
    with pytest.raises(KafkaFailed, match="end of transaction w-0-0"):
        end_all(options(server), [lost], is_commit=True)
    assert [1, 2] == visible(server)


def test_some_splits_were_committed_when_the_driver_died(server: FaultyServer) -> None:
    first = [write(server, n, batch=0, name=f"q-{n}") for n in range(4)]
    end_all(options(server), first[:2], is_commit=True)
    again = [write(server, n, batch=0, name=f"q-{n}") for n in range(4)]
    assert [True, True, False, False] == [each.handle is None for each in again]
    end_all(options(server), again, is_commit=True)
    assert [0, 1, 2, 3] == visible(server)


def test_two_attempts_at_a_split_do_not_disturb_each_other(server: FaultyServer) -> None:
    """Speculation without a mark: the driver commits one of them, and aborts the other."""
    slow, quick = write(server, 7, attempt=0), write(server, 7, attempt=1)
    end_all(options(server), [quick], is_commit=True)
    end_all(options(server), [slow], is_commit=False)
    assert [7] == visible(server)


def test_failure_is_raised_as_it_is(server: FaultyServer) -> None:
    """Before anything was written there is nothing to abort, and nothing hides the error."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(1)
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted"):
        write_task(options(server), failing(), name="w", attempt=0, mark=None)
    missing = read_sink_options({"servers": server.kafka_address, "topic": "nope"}, COLUMNS)
    with pytest.raises(KafkaFailed, match="topic nope: UNKNOWN_TOPIC_OR_PARTITION"):
        write_task(missing, rows(1), name="w", attempt=0, mark=None)
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

"""A program that consumes, transforms and produces in transactions, until it is killed.

    python -m compat_tests.exactly_once_app CLIENT BOOTSTRAP GROUP FROM TO

Every record becomes one of the same key in the same partition, with `done:` before its value. The
offsets are committed with the transaction that holds the results. The member is a static one: when
it comes back, the group does not wait for the session of the one that was killed. Each client has
one function that does this for ever; programs/java/src/main/java/ExactlyOnce.java is the same for
the Java client.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata

PREFIX = b"done:"
BATCH_RECORDS = 25
BATCH_WAIT_S = 0.05
TRANSACTION_TIMEOUT_MS = 10_000
TRANSACTION_S_MAX = 2 * TRANSACTION_TIMEOUT_MS // 1_000
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
RECONNECT_BACKOFF_MS_MAX = 200
CALL_S = 60


def run_librdkafka(bootstrap: str, group: str, source: str, target: str) -> None:
    """Work with confluent-kafka."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.instance.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "log_level": 0,
    })  # fmt: skip
    producer = Producer({
        "bootstrap.servers": bootstrap,
        "transactional.id": group,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MS_MAX,
        # Otherwise librdkafka 2.16 forgets its brokers when none is left, and then waits for ever
        # for the group coordinator it had cached, whatever the timeout of the call.
        "metadata.recovery.strategy": "none",
        "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(CALL_S)
    consumer.subscribe([source])
    while True:
        found = consumer.consume(BATCH_RECORDS, BATCH_WAIT_S)
        for error in filter(None, (one.error() for one in found)):
            if error.fatal():
                raise KafkaException(error)
        messages = [one for one in found if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for one in messages:
            partition = one.partition()
            assert partition is not None, "a message without error has a partition"
            value = PREFIX + (one.value() or b"")
            producer.produce(target, value, key=one.key(), partition=partition)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), CALL_S
        )
        producer.commit_transaction(CALL_S)


def reading_as(group: str) -> dict[str, Any]:
    """Return what the two clients in Python call the settings of such a member."""
    return {
        "group_id": group,
        "group_instance_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
    }


async def _run_aiokafka(bootstrap: str, group: str, source: str, target: str) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        **reading_as(group),
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=group,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    await producer.start()
    await consumer.start()
    while True:
        found = await consumer.getmany(
            timeout_ms=int(BATCH_WAIT_S * 1000), max_records=BATCH_RECORDS
        )
        if not found:
            continue
        async with producer.transaction():
            offsets = {}
            for place, records in found.items():
                for one in records:
                    await producer.send(
                        target, PREFIX + one.value, key=one.key, partition=place.partition
                    )
                offsets[place] = records[-1].offset + 1
            await producer.send_offsets_to_transaction(offsets, group)


def run_aiokafka(bootstrap: str, group: str, source: str, target: str) -> None:
    """Work with aiokafka."""
    asyncio.run(_run_aiokafka(bootstrap, group, source, target))


def run_kafka_python(bootstrap: str, group: str, source: str, target: str) -> None:
    """Work with kafka-python.

    Its calls wait without a limit, and release 3.0.12 was seen to wait for ever after a kill of the
    server: the application for the sender's thread, and that one, with nothing in flight, to be
    woken up. So a transaction that takes longer than the server lets it live ends the program.
    """
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=group,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        reconnect_backoff_max_ms=RECONNECT_BACKOFF_MS_MAX,
    )
    producer.init_transactions()
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        **reading_as(group),
        reconnect_backoff_max_ms=RECONNECT_BACKOFF_MS_MAX,
    )
    while True:
        found = consumer.poll(int(BATCH_WAIT_S * 1000), max_records=BATCH_RECORDS)
        if not found:
            continue
        signal.alarm(TRANSACTION_S_MAX)
        producer.begin_transaction()
        for place, records in found.items():
            for one in records:
                producer.send(target, PREFIX + one.value, key=one.key, partition=place.partition)
        offsets = {
            place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for place, records in found.items()
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
        signal.alarm(0)


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "confluent-kafka": run_librdkafka,
    "aiokafka": run_aiokafka,
    "kafka-python": run_kafka_python,
}
CLIENT_ERRORS = (KafkaException, aiokafka.errors.KafkaError, kafka.errors.KafkaError)


def main() -> None:
    """Run until killed; an error of the client ends the program, as it would in production."""
    try:
        CLIENTS[sys.argv[1]](*sys.argv[2:6])
    except CLIENT_ERRORS as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()

"""A program that consumes, transforms and produces in transactions, until it is killed.

    python -m compat_tests.exactly_once_app CLIENT BOOTSTRAP GROUP FROM TO GATE

Every record becomes one of the same key in the same partition, with `done:` before its value. The
offsets are committed with the transaction that holds the results. When all of it is written the
program asks for leave at the gate (commit_gate.py) and then commits. The member is a static one:
when it comes back, the group does not wait for the session of the one that was killed. Each client
has one function that does this for ever; programs/java/src/main/java/ExactlyOnce.java is the same
for the Java client.
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

from compat_tests.commit_gate import GatedProgram
from compat_tests.settings import dotted

PREFIX = b"done:"
BATCH_RECORDS = 25
BATCH_WAIT_S = 0.05
SESSION_TIMEOUT_MS = 60_000
TRANSACTION_TIMEOUT_MS = 60_000
TRANSACTION_S_MAX = TRANSACTION_TIMEOUT_MS // 1_000
QUICK_RECONNECT = {"reconnect_backoff_max_ms": 200}
CALL_S = 60


def member_options(bootstrap: str, group: str) -> dict[str, Any]:
    """What the clients agree on about the consumer, but for the dots of librdkafka."""
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_instance_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": 1_000,
    }


def producer_options(bootstrap: str, group: str) -> dict[str, Any]:
    """The same about the producer."""
    return {
        "bootstrap_servers": bootstrap,
        "transactional_id": f"{group}-producer",
        "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
    }


def run_librdkafka(bootstrap: str, group: str, source: str, target: str, gate: str) -> None:
    """Work with confluent-kafka."""
    quiet = {"log_level": 0}
    gated = GatedProgram(gate)
    consumer = Consumer(dotted(member_options(bootstrap, group)) | quiet)
    # Otherwise librdkafka 2.16 forgets its brokers when none is left, and then waits for ever
    # for the group coordinator it had cached, whatever the timeout of the call.
    remembering = {"metadata_recovery_strategy": "none"} | QUICK_RECONNECT
    producer = Producer(dotted(producer_options(bootstrap, group) | remembering) | quiet)
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
        producer.flush(CALL_S)
        gated.ask_leave()
        producer.commit_transaction(CALL_S)


async def _run_aiokafka(bootstrap: str, group: str, source: str, target: str, gate: str) -> None:
    gated = GatedProgram(gate)
    consumer = AIOKafkaConsumer(source, **member_options(bootstrap, group))
    producer = AIOKafkaProducer(**producer_options(bootstrap, group))
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
            await producer.flush()
            await asyncio.to_thread(gated.ask_leave)


def run_aiokafka(bootstrap: str, group: str, source: str, target: str, gate: str) -> None:
    """Work with aiokafka."""
    asyncio.run(_run_aiokafka(bootstrap, group, source, target, gate))


def run_kafka_python(bootstrap: str, group: str, source: str, target: str, gate: str) -> None:
    """Work with kafka-python.

    Its calls wait without a limit, and release 3.0.12 forgets a transactional request whose
    coordinator refuses the connection (docs/SKIPPED.md). So a transaction that takes longer than
    the server lets it live ends the program.
    A rebalance that outlives the poll in which it began may be forgotten: no poll is short.
    """
    gated = GatedProgram(gate)
    producer = KafkaProducer(**producer_options(bootstrap, group), **QUICK_RECONNECT)
    producer.init_transactions()
    consumer = KafkaConsumer(source, **member_options(bootstrap, group), **QUICK_RECONNECT)
    while True:
        found = consumer.poll(CALL_S * 1000, max_records=BATCH_RECORDS)
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
        producer.flush()
        gated.ask_leave()
        producer.commit_transaction()
        signal.alarm(0)


CLIENTS: dict[str, Callable[[str, str, str, str, str], None]] = {
    "confluent-kafka": run_librdkafka,
    "aiokafka": run_aiokafka,
    "kafka-python": run_kafka_python,
}
CLIENT_ERRORS = (KafkaException, aiokafka.errors.KafkaError, kafka.errors.KafkaError)


def main() -> None:
    """Run until killed; an error of the client ends the program, as it would in production."""
    try:
        CLIENTS[sys.argv[1]](*sys.argv[2:7])
    except CLIENT_ERRORS as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()

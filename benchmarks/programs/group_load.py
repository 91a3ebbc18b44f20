"""Load by Kafka consumer groups: read a topic with some members, commit what was read.

Rule: members of one process; an offset is committed behind every chunk that was read, and the load
waits for the last commits, as it waits for acknowledgements on the native side.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaException

from benchmarks.programs import aiokafka_load, rdkafka_load

_GROUP = "load"
_TAKE = 1000
_QUIET_S_MAX = 30.0


class Progress:
    """What the members of one group have read together."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted
        self._begun = 0.0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Records came; the first ones start the clock."""
        with self._lock:
            self._begun = self._begun or time.perf_counter()

    def add(self, count: int) -> None:
        """So many records are committed."""
        with self._lock:
            self.left -= count

    def seconds(self) -> float:
        """Return how long ago the first records came."""
        return time.perf_counter() - self._begun


async def consume(arguments: argparse.Namespace) -> float:
    """Read all records with the members that are asked for; give the seconds it took."""
    progress = Progress(arguments.records)
    if arguments.via == "aiokafka":
        members = [_aiokafka_member(arguments, progress) for _ in range(arguments.consumers)]
    else:
        members = [
            asyncio.to_thread(_librdkafka_member, arguments, progress)
            for _ in range(arguments.consumers)
        ]
    return max(await asyncio.gather(*members))


async def _aiokafka_member(arguments: argparse.Namespace, progress: Progress) -> float:
    consumer = AIOKafkaConsumer(
        arguments.topic,
        bootstrap_servers=arguments.bootstrap,
        group_id=_GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    quiet, seconds = time.perf_counter(), 0.0
    async with consumer:
        while progress.left > 0:
            received = await consumer.getmany(timeout_ms=200, max_records=_TAKE)
            if received:
                progress.begin()
                await consumer.commit()
                progress.add(sum(len(each) for each in received.values()))
                quiet, seconds = time.perf_counter(), progress.seconds()
            check_quiet(quiet, progress)
    return seconds


def _librdkafka_member(arguments: argparse.Namespace, progress: Progress) -> float:
    consumer = Consumer({
        "bootstrap.servers": arguments.bootstrap,
        "group.id": _GROUP,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        # As in the other loads: without it the library's own pauses are measured.
        "fetch.queue.backoff.ms": 5,
    })  # fmt: skip
    consumer.subscribe([arguments.topic])
    quiet, seconds = time.perf_counter(), 0.0
    while progress.left > 0:
        messages = consumer.consume(_TAKE, timeout=0.2)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        if messages:
            progress.begin()
            consumer.commit(asynchronous=False)
            progress.add(len(messages))
            quiet, seconds = time.perf_counter(), progress.seconds()
        check_quiet(quiet, progress)
    consumer.close()
    return seconds


def check_quiet(since: float, progress: Progress) -> None:
    """End the load when nothing comes any more."""
    if progress.left > 0 and time.perf_counter() - since > _QUIET_S_MAX:
        raise SystemExit(f"{progress.left} records did not come")


def _aiokafka_produce(arguments: argparse.Namespace) -> float:
    return asyncio.run(aiokafka_load.produce(arguments))


PRODUCERS: dict[str, Callable[[argparse.Namespace], float]] = {
    "librdkafka": rdkafka_load.produce,
    "aiokafka": _aiokafka_produce,
}

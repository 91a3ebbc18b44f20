"""Three Kafka clients, each a process that loads the flights of one airport.

Rule: every loader waits for the acknowledgement of every record and reports how many it got.
Must not know: what is read back later, and by which client.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import aiokafka
import confluent_kafka
import kafka

from pipelines.flights import (
    FLIGHTS_TOPIC,
    KEY_COLUMNS,
    FlightRecord,
    flight_records,
    flights_from,
    table_records,
)

REPORT_EVERY = 2_000
YEAR_START_MS = 1_356_998_400_000

Message = tuple[str, FlightRecord]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Which client loads which airport's flights, and with which compression."""

    client: str
    origin: str
    compression: str
    with_tables: bool
    load: Callable[[str, str, Iterable[Message], Progress], int]

    def messages(self, flights_max: int | None = None) -> Iterator[Message]:
        """Yield (topic, record) of everything this loader is to send."""
        flights = (
            (FLIGHTS_TOPIC, record)
            for record in flight_records(flights_from(self.origin, flights_max), self.client)
        )
        if not self.with_tables:
            return flights
        tables = (
            (name, record)
            for name in KEY_COLUMNS
            for record in table_records(name, self.client, timestamp_ms=YEAR_START_MS)
        )
        return chain(tables, flights)

    def run(self, bootstrap: str, progress: Progress, flights_max: int | None = None) -> int:
        """Send everything and return how many records were acknowledged."""
        return self.load(bootstrap, self.compression, self.messages(flights_max), progress)


def load_with_aiokafka(
    bootstrap: str, compression: str, messages: Iterable[Message], progress: Progress
) -> int:
    """Send with aiokafka; a batch's future ends with its acknowledgement."""
    return asyncio.run(_load_with_aiokafka(bootstrap, compression, messages, progress))


async def _load_with_aiokafka(
    bootstrap: str, compression: str, messages: Iterable[Message], progress: Progress
) -> int:
    acknowledged = 0
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=compression,
        enable_idempotence=True,
        linger_ms=20,
        max_batch_size=65_536,
    ) as producer:
        pending = []
        for topic, record in messages:
            pending.append(
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            )
            if len(pending) == REPORT_EVERY:
                acknowledged += len(await asyncio.gather(*pending))
                pending.clear()
                progress(acknowledged)
        acknowledged += len(await asyncio.gather(*pending))
    progress(acknowledged)
    return acknowledged


def load_with_kafka_python(
    bootstrap: str, compression: str, messages: Iterable[Message], progress: Progress
) -> int:
    """Send with kafka-python."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=compression,
        linger_ms=20,
        batch_size=65_536,
    )
    acknowledged: int = 0
    pending = []
    for topic, record in messages:
        pending.append(
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
        )
        if len(pending) == REPORT_EVERY:
            acknowledged += sum(future.get(timeout=60).offset >= 0 for future in pending)
            pending.clear()
            progress(acknowledged)
    producer.flush(timeout=60)
    acknowledged += sum(future.get(timeout=60).offset >= 0 for future in pending)
    producer.close()
    progress(acknowledged)
    return acknowledged


def load_with_confluent_kafka(
    bootstrap: str, compression: str, messages: Iterable[Message], progress: Progress
) -> int:
    """Send with confluent-kafka, that is librdkafka."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": compression,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 65_536,
        }
    )
    acknowledged = 0

    def delivered(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        acknowledged += 1

    for number, (topic, record) in enumerate(messages):
        _produce(producer, topic, record, delivered)
        if number % REPORT_EVERY == 0:
            producer.poll(0)
            progress(acknowledged)
    if producer.flush(60) > 0:
        raise TimeoutError(f"not acknowledged within 60 s: {len(producer)} records")
    progress(acknowledged)
    return acknowledged


def _produce(
    producer: confluent_kafka.Producer,
    topic: str,
    record: FlightRecord,
    delivered: Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None],
) -> None:
    """Hand one record over, waiting while librdkafka's own queue is full."""
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                key=record.key,
                headers=dict(record.headers),
                timestamp=record.timestamp_ms,
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(1)
        else:
            return


LOADERS = (
    Loader(
        client="aiokafka",
        origin="EWR",
        compression="lz4",
        with_tables=False,
        load=load_with_aiokafka,
    ),
    Loader(
        client="kafka-python",
        origin="JFK",
        compression="gzip",
        with_tables=False,
        load=load_with_kafka_python,
    ),
    Loader(
        client="confluent-kafka",
        origin="LGA",
        compression="zstd",
        with_tables=True,
        load=load_with_confluent_kafka,
    ),
)

"""A table view of a topic in which every record has a key of its own: loading, memory, refreshes.

Rule: librdkafka writes the records before. The memory is what this process has more after loading;
embedded it is the server, too, whose cache is full by then. A refresh is timed on a view that has
nothing to read, and again behind one record that was just acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import uvloop
from confluent_kafka import Producer

import kledger
from benchmarks.programs.payload import VALUES_COUNT, payload_values

_TOPIC = "table"
_REFRESHES = 300
_FLUSH_S = 300
_PAGE_BYTES = 4096


def fill(address: str, records: int, record_bytes: int) -> None:
    """Write as many keys."""
    values = payload_values(record_bytes)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "batch.size": 131_072})
    for number in range(records):
        while True:
            try:
                producer.produce(_TOPIC, values[number % VALUES_COUNT], key=b"%012d" % number)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(_FLUSH_S)


def memory_bytes() -> int:
    """Return the resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


async def times_ms(work: Callable[[], Awaitable[object]]) -> list[float]:
    """Do something again and again; return how long each took, sorted."""
    found = []
    for _ in range(_REFRESHES):
        begun = time.perf_counter()
        await work()
        found.append((time.perf_counter() - begun) * 1e3)
    return sorted(found)


async def measure(
    client: kledger.Client, address: str, arguments: argparse.Namespace
) -> dict[str, float]:
    """Fill a topic and view it."""
    records: int = arguments.records
    await client.create_topic(_TOPIC, partitions=arguments.partitions)
    await asyncio.to_thread(fill, address, records, arguments.record_bytes)
    memory, begun, cpu = memory_bytes(), time.perf_counter(), time.process_time()
    view = await client.create_table_view(_TOPIC)
    took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    assert records == len(view), f"{len(view)} keys of {records}"
    figures = {
        "records_per_s": records / took_s,
        "cpu_us_per_key": cpu_s * 1e6 / records,
        "bytes_per_key": (memory_bytes() - memory) / records,
    }
    idle = await times_ms(view.refresh)
    producer = await client.create_producer(_TOPIC)
    behind = []
    for number in range(_REFRESHES):
        await producer.send(b"%d" % number, key=b"last")
        begun = time.perf_counter()
        await view.refresh()
        behind.append((time.perf_counter() - begun) * 1e3)
        assert view.get(b"last") == b"%d" % number
    return figures | {
        "refresh_p50_ms": median(idle),
        "refresh_p99_ms": idle[len(idle) * 99 // 100],
        "refresh_behind_p50_ms": median(behind),
    }


async def run(arguments: argparse.Namespace) -> dict[str, float]:
    """Measure embedded, or against a running server."""
    if arguments.via == "embedded":
        async with kledger.embedded(arguments.data, kafka="127.0.0.1:0") as embedded:
            return await measure(embedded, embedded.kafka_address, arguments)
    async with kledger.connect(f"kledger://{arguments.native}") as client:
        return await measure(client, arguments.bootstrap, arguments)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--via", choices=["embedded", "remote"], required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--data", default=None, help="folder of an embedded server")
    parser.add_argument("--native", default=None)
    parser.add_argument("--bootstrap", default=None)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(run(arguments))))


if __name__ == "__main__":
    main()

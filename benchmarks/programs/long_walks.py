"""Long walks: how long the event loop of a server stands still while batches are looked into.

Rule: the server runs in this process, so that its loop can be asked; the client that sends the
batches in another. A pause is what lies between two wake-ups of a timer beyond its time. Beside it
stands the processor time that the loop's own thread took between two wake-ups, which says the same
on a machine that others use, but for the time that a thread holds the interpreter's lock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import wire
from compat_tests.frames import read_frame
from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.compression import Codec
from kledger.testing import Server

_TOPIC = "long-walks"
_TICK_S = 0.001
_LATE_MS = 24 * 3_600_000
_TIMEOUT_S = 300


@dataclass
class Pauses:
    """The longest times between two wake-ups of a timer, in seconds."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    async def watch(self) -> None:
        """Wake up again and again."""
        wall, cpu = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(_TICK_S)
            now, now_cpu = time.perf_counter(), time.thread_time()
            self.wall_s = max(self.wall_s, now - wall - _TICK_S)
            self.cpu_s = max(self.cpu_s, now_cpu - cpu)
            wall, cpu = now, now_cpu


def hostile_batches(records: int) -> dict[str, bytes]:
    """Build batches that a client may send, and whose every record has to be looked at."""
    late_ms = time.time_ns() // 1_000_000 + _LATE_MS
    tiny = [NewRecord(None, timestamp=late_ms)] * records
    large = [NewRecord(bytes(1_000_000), timestamp=late_ms)] * 100
    headers = [NewRecord(None, timestamp=late_ms, headers=[("", None)] * (records // 2))]
    return {
        "plain": bytes(build_batch(tiny[: records // 4])),
        "headers": bytes(build_batch(headers)),
        "zstd": bytes(build_batch(tiny, codec=Codec.ZSTD)),
        "gzip": bytes(build_batch(large, codec=Codec.GZIP)),
    }


def send_all(address: str, records: int) -> None:
    """Send each batch, and wait for its answer."""
    host, _, port = address.rpartition(":")
    batches = hostile_batches(records)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for created in admin.create_topics([NewTopic(_TOPIC, 1)]).values():
        created.result()
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
        produce(connection, bytes(build_batch([NewRecord(b"the server loads what it needs")])))
        print("ready", flush=True)
        sys.stdin.readline()
        for data in batches.values():
            produce(connection, data)
        print("done", flush=True)


def produce(connection: socket.socket, data: bytes) -> None:
    """Send one batch, and wait for its answer."""
    connection.sendall(wire.produce_request(_TOPIC, 0, data, acks=-1))
    read_frame(connection)


async def measure(records: int, durability: str, folder: str) -> dict[str, float]:
    """Run a server, and watch its loop while the client sends."""
    async with Server(folder, settings={"storage.durability": durability}) as server:
        return await watch(server.kafka_address, records)


async def watch(address: str, records: int) -> dict[str, float]:
    """Watch the loop while it is quiet, and while the client sends."""
    words = [sys.executable, "-m", "benchmarks.programs.long_walks", "--send-to"]
    client = await asyncio.create_subprocess_exec(
        *words, address, "--records", str(records),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    await client.stdout.readline()
    quiet, busy = Pauses(), Pauses()
    watching = asyncio.ensure_future(quiet.watch())
    await asyncio.sleep(1)
    watching.cancel()
    watching = asyncio.ensure_future(busy.watch())
    begun = time.perf_counter()
    client.stdin.write(b"go\n")
    await client.stdout.readline()
    took_s = time.perf_counter() - begun
    watching.cancel()
    await client.wait()
    return {
        "pause_ms": busy.wall_s * 1e3,
        "pause_cpu_ms": busy.cpu_s * 1e3,
        "pause_ms_without": quiet.wall_s * 1e3,
        "pause_cpu_ms_without": quiet.cpu_s * 1e3,
        "answered_s": took_s,
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability", choices=["fsync", "os"], default="fsync")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--data", default=None, help="which disk is measured")
    parser.add_argument("--send-to", default=None, help="only be the client of that server")
    arguments = parser.parse_args()
    if arguments.send_to is not None:
        send_all(arguments.send_to, arguments.records)
        return
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        found = asyncio.run(measure(arguments.records, arguments.durability, folder))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Long walks: how long the event loop of a server stands still while batches are looked into.

Rule: the server runs in this process, on the loop that `kledger serve` has, so that the loop can be
asked; the client that sends the batches is another process, which has built them before. A pause is
what lies between two wake-ups of a timer beyond its time. Beside it stands the pause without the
time in which the loop's thread waited for a processor, which says the same on a machine that others
use; and the processor time that the thread took itself. What is left waits for the GIL
.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

import uvloop
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
    scheduled_s: float = 0.0
    cpu_s: float = 0.0

    async def watch(self) -> None:
        """Wake up again and again."""
        statistics = os.open(
            f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC
        )
        try:
            wall, cpu, waited = time.perf_counter(), *_cpu_and_wait_s(statistics)
            while True:
                await asyncio.sleep(_TICK_S)
                now, now_cpu, now_waited = time.perf_counter(), *_cpu_and_wait_s(statistics)
                pause = now - wall - _TICK_S
                self.wall_s = max(self.wall_s, pause)
                self.scheduled_s = max(self.scheduled_s, pause - (now_waited - waited))
                self.cpu_s = max(self.cpu_s, now_cpu - cpu)
                wall, cpu, waited = now, now_cpu, now_waited
        finally:
            os.close(statistics)


def _cpu_and_wait_s(statistics: int) -> tuple[float, float]:
    """Return the time that a thread ran, and the time that it was ready and did not."""
    ran_ns, waited_ns, _ = os.pread(statistics, 128, 0).split()
    return int(ran_ns) / 1e9, int(waited_ns) / 1e9


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
        "pause_scheduled_ms": busy.scheduled_s * 1e3,
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
    with (
        tempfile.TemporaryDirectory(dir=arguments.data) as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        found = runner.run(measure(arguments.records, arguments.durability, folder))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Load by a bare socket: the same Produce request again and again, a few of them under way.

The client costs next to nothing, so that what is seen is the server: requests in a second, and with
one request under way the time of a round trip.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import struct
import time
from collections.abc import Sequence

from benchmarks import wire
from benchmarks.programs.payload import payload_values

_WARM_UP_S = 0.3
_RECEIVE_BYTES = 1 << 16


class Answers:
    """Splits what a socket delivers into responses and checks them."""

    def __init__(self, connection: socket.socket) -> None:
        """Read from `connection`."""
        self._connection = connection
        self._pending = bytearray()

    def wait(self) -> int:
        """Wait for more and give the number of complete responses taken."""
        received = self._connection.recv(_RECEIVE_BYTES)
        if not received:
            raise SystemExit("the server closed the connection")
        self._pending += received
        taken = position = 0
        while len(self._pending) - position >= 4:
            (size,) = struct.unpack_from(">i", self._pending, position)
            if len(self._pending) - position - 4 < size:
                break
            body = bytes(self._pending[position + 4 : position + 4 + size])
            if error := wire.produce_error(body):
                raise SystemExit(f"Produce was answered with error {error}")
            position += 4 + size
            taken += 1
        del self._pending[:position]
        return taken


def connect(bootstrap: str) -> socket.socket:
    """Connect without waiting to gather small writes."""
    host, _, port = bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def keep_under_way(
    connection: socket.socket,
    different: Sequence[bytes],
    *,
    in_flight: int,
    seconds: float,
    requests: int,
) -> tuple[int, float]:
    """Send the requests in turn until the time or the number is reached.

    Returns:
        What was answered, and how long it took.
    """
    answers, following = Answers(connection), itertools.cycle(different)
    begun = time.perf_counter()
    sent = answered = 0
    first = min(in_flight, requests)
    connection.sendall(b"".join(itertools.islice(following, first)))
    sent += first
    while answered < sent:
        taken = answers.wait()
        answered += taken
        if sent < requests and time.perf_counter() - begun < seconds:
            more = min(taken, requests - sent)
            connection.sendall(b"".join(itertools.islice(following, more)))
            sent += more
    return answered, time.perf_counter() - begun


def round_trips(connection: socket.socket, request: bytes, *, seconds: float) -> list[float]:
    """Send one request after the other; give the seconds of each."""
    answers = Answers(connection)
    took = []
    deadline = time.perf_counter() + seconds
    before = time.perf_counter()
    while before < deadline:
        connection.sendall(request)
        answers.wait()
        now = time.perf_counter()
        took.append(now - before)
        before = now
    return took


def percentile(values: list[float], share: float) -> float:
    """Give the value below which a share of the sorted values lies."""
    return values[min(int(len(values) * share), len(values) - 1)]


def main() -> None:
    """Run one load and print what it took; `total` counts the warm-up too, as the CPU does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--partitions", default="0", help="of one leader: 0,2,4")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--in-flight", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--requests", type=int, default=1 << 62)
    arguments = parser.parse_args()
    value = payload_values(arguments.record_bytes, count=1)
    batch = wire.record_batch(value, int(time.time() * 1000))
    acks = -1 if arguments.acks == "all" else int(arguments.acks)
    requests = [
        wire.produce_request(arguments.topic, int(each), batch, acks=acks)
        for each in arguments.partitions.split(",")
    ]
    with connect(arguments.bootstrap) as connection:
        if arguments.in_flight == 1:
            warm = len(round_trips(connection, requests[0], seconds=_WARM_UP_S))
            took = sorted(round_trips(connection, requests[0], seconds=arguments.seconds))
            found = {"p50_ms": percentile(took, 0.5) * 1e3, "p99_ms": percentile(took, 0.99) * 1e3}
            print(json.dumps(found | {"requests": len(took), "total": warm + len(took)}))
            return
        limits = {"in_flight": arguments.in_flight, "requests": arguments.requests}
        warm = 0
        if arguments.seconds < 1e9:
            warm, _ = keep_under_way(connection, requests, seconds=_WARM_UP_S, **limits)
        spent = time.process_time()
        done, seconds = keep_under_way(connection, requests, seconds=arguments.seconds, **limits)
        found = {"seconds": seconds, "requests": done, "total": warm + done}
        print(json.dumps(found | {"client_cpu_s": time.process_time() - spent}))


if __name__ == "__main__":
    main()

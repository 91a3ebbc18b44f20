"""Paced load: one small record at a time at a steady rate, and a consumer that waits for it.

Rule: one thread and two bare sockets, so that nothing of a client's own stands between a record and
its two answers: that of its Produce request, and the Fetch response in which it comes. Latencies
count from the time at which a record was due, so a server that stops answering is not measured less
often. Everything is kept until the end; the percentiles are those of the windows that are asked
for on standard input, each a name and one window or several, in seconds of the system's monotonic
clock.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from statistics import median

from benchmarks import wire
from benchmarks.programs.payload import payload_values
from benchmarks.programs.raw_load import connect, percentile

_RECEIVE_BYTES = 1 << 16
_FETCH_WAIT_MS = 10_000
_BODY = 4
"""Where the body of a response begins, behind the correlation id."""


class Responses:
    """Splits what a socket delivers into the bodies of responses."""

    def __init__(self, connection: socket.socket) -> None:
        """Read from `connection`."""
        self._connection = connection
        self._pending = bytearray()

    def take(self) -> Iterator[bytes]:
        """Receive once, and give what is complete."""
        received = self._connection.recv(_RECEIVE_BYTES)
        if not received:
            raise SystemExit("the server closed the connection")
        self._pending += received
        while len(self._pending) >= 4:
            (size,) = struct.unpack_from(">i", self._pending)
            if len(self._pending) < 4 + size:
                return
            yield bytes(self._pending[4 : 4 + size])
            del self._pending[: 4 + size]


class PacedLoad:
    """The load of one partition, which is empty at the beginning."""

    def __init__(self, bootstrap: str, topic: str, *, rate: int, record_bytes: int) -> None:
        """Connect; `rate` is in records a second."""
        self._topic = topic
        self._interval_s = 1 / rate
        self._value = payload_values(record_bytes, count=1)
        self._producing, self._fetching = connect(bootstrap), connect(bootstrap)
        self.due_s: list[float] = []
        self.acknowledged_s: list[float] = []
        self.fetched_s: list[float] = []

    def run(self) -> str:
        """Send until a line comes on standard input; give that line."""
        produced, fetched = Responses(self._producing), Responses(self._fetching)
        sources = [self._producing, self._fetching, sys.stdin]
        self._fetch()
        due = time.monotonic()
        while True:
            ready, _, _ = select.select(sources, (), (), max(due - time.monotonic(), 0))
            if self._producing in ready:
                for body in produced.take():
                    if error := wire.produce_error(body):
                        raise SystemExit(f"Produce was answered with error {error}")
                    self.acknowledged_s.append(time.monotonic())
            if self._fetching in ready:
                for body in fetched.take():
                    self._take_fetched(body[_BODY:])
            if sys.stdin in ready:
                return sys.stdin.readline()
            if time.monotonic() >= due:
                self._send(due)
                due += self._interval_s

    def _send(self, due: float) -> None:
        self.due_s.append(due)
        batch = wire.record_batch(self._value, int(time.time() * 1000))
        self._producing.sendall(wire.produce_request(self._topic, 0, batch, acks=-1))

    def _fetch(self) -> None:
        places = {self._topic: [0]}
        offset = len(self.fetched_s)
        self._fetching.sendall(wire.fetch_request(places, wait_ms=_FETCH_WAIT_MS, offset=offset))

    def _take_fetched(self, body: bytes) -> None:
        now = time.monotonic()
        end = wire.fetched_end(body, self._topic)
        if end is not None:
            self.fetched_s += [now] * (end - len(self.fetched_s))
        self._fetch()

    def percentiles(self, *windows: tuple[float, float]) -> dict[str, float]:
        """Return those of the records that were due in the windows, in milliseconds.

        `p99_second` is the p99 of the median second, which single pauses of a busy machine leave
        as it is.
        """
        found = {}
        for who, answered in (("produce", self.acknowledged_s), ("fetch", self.fetched_s)):
            seconds: defaultdict[tuple[float, int], list[float]] = defaultdict(list)
            for due, answer in zip(self.due_s, answered, strict=False):
                for begin_s, end_s in windows:
                    if begin_s <= due < end_s:
                        seconds[begin_s, int(due - begin_s)].append((answer - due) * 1e3)
            if not seconds:
                raise SystemExit(f"{who}: no record was answered in the windows {windows}")
            took = sorted(chain.from_iterable(seconds.values()))
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
                found[f"{who}_{name}_ms"] = percentile(took, share)
            each = [percentile(sorted(second), 0.99) for second in seconds.values()]
            found[f"{who}_p99_second_ms"] = median(each)
        return found


def main() -> None:
    """Print the percentiles of each window as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--record-bytes", type=int, default=100)
    arguments = parser.parse_args()
    load = PacedLoad(
        arguments.bootstrap, arguments.topic,
        rate=arguments.rate, record_bytes=arguments.record_bytes,
    )  # fmt: skip
    windows: dict[str, list[tuple[float, float]]] = json.loads(load.run())
    print(json.dumps({name: load.percentiles(*each) for name, each in windows.items()}))


if __name__ == "__main__":
    main()

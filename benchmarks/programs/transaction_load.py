"""Load of transactions: one record each, one after the other, by librdkafka or by a bare socket.

The bare socket speaks both protocols and costs next to nothing. When the server is not done with
the transaction before, it asks again after a moment, as every client does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from confluent_kafka import Producer as RdkafkaProducer

from benchmarks import wire
from benchmarks.exchange import Exchange, exchanges
from benchmarks.programs.payload import payload_values
from benchmarks.transaction_wire import (
    Producer,
    add_partition_request,
    added_error,
    coordinator_error,
    end_request,
    ended,
    find_coordinator_request,
    identified,
    init_producer_id_request,
    produce_request,
    produced_error,
)

_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR, _CONCURRENT = 14, 15, 16, 51
_AGAIN = {_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR, _CONCURRENT}
_PAUSE_S = 0.001
_TRIES_MAX = 30_000
_TIMEOUT_S = 60


class RawTransactions:
    """A transactional producer on a bare socket."""

    def __init__(self, exchange: Exchange, topic: str, value: bytes, *, protocol: int) -> None:
        """Write `value` to partition 0 of `topic`."""
        self._exchange = exchange
        self._topic = topic
        self._value = value
        self._protocol = protocol
        self._sequence = 0
        self._producer = Producer(f"load-{topic}")

    def begin(self) -> None:
        """Get an id from the coordinator."""
        self._ask(find_coordinator_request(self._producer), coordinator_error)
        answer = self._ask(init_producer_id_request(self._producer), coordinator_error)
        self._producer = identified(self._producer, answer)

    def commit_one(self) -> None:
        """Do one transaction of one record."""
        topic, protocol = self._topic, self._protocol
        if protocol == 1:
            request = add_partition_request(self._producer, topic)
            self._ask(request, lambda answer: added_error(answer, topic))
        identity = (self._producer.producer_id, self._producer.epoch, self._sequence)
        batch = wire.record_batch([self._value], int(time.time() * 1000), producer=identity)
        request = produce_request(self._producer, topic, batch, protocol=protocol)
        self._ask(request, lambda answer: produced_error(answer, topic, protocol=protocol))
        before = self._producer
        request = end_request(before, protocol=protocol)
        answer = self._ask(request, lambda answer: ended(before, answer, protocol=protocol)[0])
        _, self._producer = ended(before, answer, protocol=protocol)
        self._sequence = self._sequence + 1 if self._producer == before else 0

    def _ask(self, request: bytes, error_of: Callable[[bytes], int]) -> bytes:
        """Ask until the answer is one; anything but a reason to wait ends the load."""
        for _ in range(_TRIES_MAX):
            answer = self._exchange.ask(request)
            error = error_of(answer)
            if not error:
                return answer
            if error not in _AGAIN:
                break
            time.sleep(_PAUSE_S)
        raise SystemExit(f"API {request[5]} was answered with error {error}")


def rdkafka_commit(arguments: argparse.Namespace, value: bytes) -> Callable[[], None]:
    """Give a function that does one transaction by librdkafka."""
    producer = RdkafkaProducer({
        "bootstrap.servers": arguments.bootstrap,
        "transactional.id": f"load-{arguments.topic}",
        "linger.ms": 0,
    })  # fmt: skip
    producer.init_transactions(_TIMEOUT_S)

    def commit_one() -> None:
        producer.begin_transaction()
        producer.produce(arguments.topic, value, partition=0)
        producer.commit_transaction(_TIMEOUT_S)

    return commit_one


def timed(commit_one: Callable[[], None], count: int) -> float:
    """Give the seconds that so many transactions take."""
    begun = time.perf_counter()
    for _ in range(count):
        commit_one()
    return time.perf_counter() - begun


def main() -> None:
    """Run one load and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--client", choices=["librdkafka", "raw"], required=True)
    parser.add_argument("--protocol", type=int, choices=[1, 2], required=True)
    parser.add_argument("--transactions", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    arguments = parser.parse_args()
    (value,) = payload_values(arguments.record_bytes, count=1)
    if arguments.client == "librdkafka":
        seconds = timed(rdkafka_commit(arguments, value), arguments.transactions)
    else:
        with exchanges(arguments.bootstrap, 1) as (exchange,):
            protocol = arguments.protocol
            load = RawTransactions(exchange, arguments.topic, value, protocol=protocol)
            load.begin()
            seconds = timed(load.commit_one, arguments.transactions)
    print(json.dumps({"seconds": seconds, "transactions": arguments.transactions}))


if __name__ == "__main__":
    main()

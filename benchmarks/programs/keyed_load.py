"""Keyed load: records of which a given share is replaced by newer ones of the same key.

Rule: every key is written at least once, and which records are replaced is spread evenly over the
log; two servers get the same records in the same order.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from confluent_kafka import Producer

from benchmarks.programs.payload import VALUES_COUNT, payload_values

_FLUSH_S = 600


def record_keys(records: int, duplicates_percent: int) -> list[int]:
    """Return the number of each record's key."""
    distinct = max(records * (100 - duplicates_percent) // 100, 1)
    source = random.Random(records)
    keys = [*range(distinct), *source.choices(range(distinct), k=records - distinct)]
    source.shuffle(keys)
    return keys


def fill(bootstrap: str, topic: str, keys: list[int], record_bytes: int) -> None:
    """Write a record of each key, in order, into partition 0."""
    values = payload_values(record_bytes)
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 131_072,
        # Without it, a batch that is sent again may come behind a later one.
        "enable.idempotence": True,
    })  # fmt: skip
    for number, key in enumerate(keys):
        while True:
            try:
                value = values[number % VALUES_COUNT]
                producer.produce(topic, value, key=b"%012d" % key, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    if left := producer.flush(_FLUSH_S):
        raise SystemExit(f"{left} of {len(keys)} records were not taken")


def main() -> None:
    """Print how long it took as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--duplicates-percent", type=int, required=True)
    arguments = parser.parse_args()
    keys = record_keys(arguments.records, arguments.duplicates_percent)
    begun = time.perf_counter()
    fill(arguments.bootstrap, arguments.topic, keys, arguments.record_bytes)
    print(json.dumps({"seconds": time.perf_counter() - begun, "records": arguments.records}))


if __name__ == "__main__":
    main()

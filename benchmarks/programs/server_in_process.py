"""Server in a process: how long a test waits for one that runs in a thread beside it.

Rule: the first start also pays for what is imported only then; the others are what every further
test of a run waits for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

_STARTS = 50


def measure(starts: int = _STARTS) -> dict[str, float]:
    """Import, start and leave servers; return milliseconds."""
    begun = time.perf_counter()
    from kledger.testing import FaultyServer  # it is measured, too

    imported = time.perf_counter()
    ready, left = list[float](), list[float]()
    for _ in range(starts):
        starting = time.perf_counter()
        with FaultyServer():
            leaving = time.perf_counter()
        ready.append((leaving - starting) * 1000)
        left.append((time.perf_counter() - leaving) * 1000)
    return {
        "import_ms": (imported - begun) * 1000,
        "first_ready_ms": ready[0],
        "ready_ms": statistics.median(ready[1:]),
        "left_ms": statistics.median(left[1:]),
    }


def main() -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--durability")
    parser.add_argument("--data", help="neither is used: everything is kept in memory")
    parser.parse_args()
    print(json.dumps(measure()))


if __name__ == "__main__":
    main()

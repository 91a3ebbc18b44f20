"""Compact a topic of a kledger when asked to, and say when that began and ended.

Rule: it connects first and waits for a line on standard input, so that its own start costs nobody
anything while a compaction is measured. Times are the server's, on the system's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import kledger.sync


def main() -> None:
    """Print a line when connected, and the times in seconds as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--native", required=True)
    parser.add_argument("--topic", required=True)
    arguments = parser.parse_args()
    with kledger.sync.connect(f"kledger://{arguments.native}") as client:
        client.compaction_status(arguments.topic)
        print("connected", flush=True)
        sys.stdin.readline()
        client.compact(arguments.topic)
        status = client.compaction_status(arguments.topic)
    assert status.started_ms is not None
    assert status.ended_ms is not None
    booted_s = time.time() - time.monotonic()
    print(json.dumps({
        "begin_s": status.started_ms / 1e3 - booted_s,
        "end_s": status.ended_ms / 1e3 - booted_s,
    }))  # fmt: skip


if __name__ == "__main__":
    main()

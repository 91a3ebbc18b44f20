"""Busy process: computes with a lower priority until it is killed, and does nothing else.

Rule: it stands for what any process on the machine costs a server and its clients that share the
cores with it. A compaction computes with the same priority.
"""

from __future__ import annotations

import os

_NICENESS = 10


def main() -> None:
    """Compute."""
    os.nice(_NICENESS)
    print("computes", flush=True)
    while True:
        sum(range(1_000_000))


if __name__ == "__main__":
    main()

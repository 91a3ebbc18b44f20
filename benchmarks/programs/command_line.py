"""Command line of the load programs: what a load is asked for, and how it answers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Literal, TypeAlias

Load = Callable[[argparse.Namespace], float]
Durability: TypeAlias = Literal["fsync", "os"]


def run_load(produce: Load, consume: Load) -> None:
    """Run the load that the command line names, and print what it took as JSON.

    Args:
        produce: sends the records; gives the seconds to the last answer.
        consume: reads the records; gives the seconds to the last one.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["produce", "consume"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--record-bytes", type=int, required=True)
    parser.add_argument("--acks", default="all")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--json", action="store_true", help="values are objects in JSON")
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    load = produce if arguments.verb == "produce" else consume
    seconds = sum(load(arguments) for _ in range(arguments.repeats))
    print(json.dumps({"seconds": seconds, "records": arguments.records}))

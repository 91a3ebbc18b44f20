"""Scale load: thousands of connections, groups and subscriptions that are there and wait.

Rule: it says on standard output when everything is there, and keeps it until a line comes on
standard input. Each group has one member on a connection of its own, which sends a heartbeat every
three seconds, as Kafka's clients do; other connections have asked once. A subscription has one
consumer, which waits for messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack

import kledger
from benchmarks import wire
from benchmarks.exchange import exchanges
from benchmarks.programs.rebalance_load import Member, expect, find_coordinator, rebalance

_HEARTBEAT_S = 3.0
_SLICES = 100
"""Into how many steps the heartbeats of all groups are divided, so that none is a burst."""
_SUBSCRIPTIONS_PER_TOPIC = 10


async def keep(members: list[Member], ending: asyncio.Future[str]) -> None:
    """Send heartbeats until the line comes; the answer to one is read before the next."""
    for member in members:
        member.send_heartbeat()
    due = time.monotonic()
    while not ending.done():
        for first in range(_SLICES):
            for member in members[first::_SLICES]:
                expect(int(member.sees_rebalance()), 0)
                member.send_heartbeat()
            due += _HEARTBEAT_S / _SLICES
            await asyncio.sleep(max(due - time.monotonic(), 0))


async def subscribe(client: kledger.Client, count: int, exits: AsyncExitStack) -> None:
    """Make subscriptions, ten on a topic, each with a consumer."""
    for number in range(count):
        topic, name = divmod(number, _SUBSCRIPTIONS_PER_TOPIC)
        consumer = await client.subscribe(f"subscribed-{topic}", f"waiting-{name}")
        exits.push_async_callback(consumer.close)


async def run(arguments: argparse.Namespace) -> None:
    """Make everything, say so, keep it."""
    begun = time.monotonic()
    with exchanges(arguments.bootstrap, arguments.connections) as opened:
        for exchange in opened:
            exchange.send(wire.metadata_request())
        for exchange in opened:
            exchange.receive()
        connected_s = time.monotonic() - begun
        find_coordinator(opened[0], "group-0")
        members = []
        for number, exchange in enumerate(opened[: arguments.groups]):
            member = Member(exchange, f"group-{number}")
            member.enter()
            rebalance([], [member])
            members.append(member)
        grouped_s = time.monotonic() - begun - connected_s
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as exits:
            ending = loop.run_in_executor(None, sys.stdin.readline)
            keeping = asyncio.ensure_future(keep(members, ending))
            client = kledger.connect(f"kledger://{arguments.native}")
            await exits.enter_async_context(client)
            await subscribe(client, arguments.subscriptions, exits)
            subscribed_s = time.monotonic() - begun - connected_s - grouped_s
            print(json.dumps({
                "connect_s": connected_s, "join_s": grouped_s, "subscribe_s": subscribed_s,
            }), flush=True)  # fmt: skip
            await keeping


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--native", required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--groups", type=int, required=True, help="at most the connections")
    parser.add_argument("--subscriptions", type=int, required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

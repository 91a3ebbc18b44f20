"""Load of rebalances: a classic group of bare sockets that one more member joins and leaves.

Members ask for news at once instead of every three seconds, so that what is seen is the server: the
time from the join, or the leave, until all members have the assignment.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from statistics import median

from benchmarks.exchange import Exchange, exchanges
from benchmarks.group_wire import (
    Joined,
    error_of,
    find_coordinator_request,
    heartbeat_request,
    join_request,
    joined_of,
    leave_request,
    sync_request,
)

_AGAIN = {14, 15, 16}
"""Codes of a coordinator that is not there yet."""
_REBALANCE_IN_PROGRESS, _MEMBER_ID_REQUIRED = 27, 79
_PAUSE_S = 0.05
_TRIES_MAX = 1000
_UNKNOWN = Joined(0, -1, "", "", [])


class Member:
    """One member on a connection of its own."""

    def __init__(self, exchange: Exchange, group: str) -> None:
        """Be a member of `group` to be."""
        self._exchange = exchange
        self._group = group
        self._joined = _UNKNOWN

    def enter(self) -> None:
        """Get an id and send the join that waits for the others."""
        answer = joined_of(self._exchange.ask(join_request(self._group, "")))
        expect(answer.error, _MEMBER_ID_REQUIRED)
        self._joined = answer
        self.send_join()

    def leave(self) -> None:
        """Be gone."""
        expect(error_of(self._exchange.ask(leave_request(self._group, self._joined))), 0)
        self._joined = _UNKNOWN

    def send_heartbeat(self) -> None:
        """Ask whether all is well."""
        self._exchange.send(heartbeat_request(self._group, self._joined))

    def sees_rebalance(self) -> bool:
        """Take the answer to the heartbeat."""
        error = error_of(self._exchange.receive())
        if error:
            expect(error, _REBALANCE_IN_PROGRESS)
        return bool(error)

    def send_join(self) -> None:
        """Join under the id."""
        self._exchange.send(join_request(self._group, self._joined.member_id))

    def sync(self) -> None:
        """Take the new generation and ask for the assignment."""
        self._joined = joined_of(self._exchange.receive())
        expect(self._joined.error, 0)
        self._exchange.send(sync_request(self._group, self._joined))

    def take_assignment(self) -> None:
        """Take the answer to the sync."""
        expect(error_of(self._exchange.receive()), 0)


def expect(error: int, expected: int) -> None:
    """End the load with an unexpected error code."""
    if error != expected:
        raise SystemExit(f"error {error}, expected {expected}")


def find_coordinator(exchange: Exchange, group: str) -> None:
    """Wait until groups are served: neither the coordinator nor its answers are refused."""
    unknown = heartbeat_request(group, _UNKNOWN)
    for _ in range(_TRIES_MAX):
        error = error_of(exchange.ask(find_coordinator_request(group)))
        if not error and error_of(exchange.ask(unknown)) not in _AGAIN:
            return
        time.sleep(_PAUSE_S)
    raise SystemExit("no coordinator")


def rebalance(staying: list[Member], newcomers: Sequence[Member] = ()) -> None:
    """Let the members find out that there is a rebalance, join, and get their assignments."""
    asking = staying
    while asking:
        for member in asking:
            member.send_heartbeat()
        informed = [member.sees_rebalance() for member in asking]
        for member, is_informed in zip(asking, informed, strict=True):
            if is_informed:
                member.send_join()
        asking = [member for member, done in zip(asking, informed, strict=True) if not done]
    everybody = [*staying, *newcomers]
    for member in everybody:
        member.sync()
    for member in everybody:
        member.take_assignment()


def gather(members: list[Member]) -> None:
    """Make a group: its first member is alone at once, the others come together."""
    first, *others = members
    first.enter()
    rebalance([], [first])
    for member in others:
        member.enter()
    rebalance([first], others)


def run(members: list[Member], newcomer: Member, rounds: int) -> tuple[list[float], list[float]]:
    """Let one more member come and go; give the seconds of each join and of each leave."""
    joins, leaves = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        newcomer.enter()
        rebalance(members, [newcomer])
        joins.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        newcomer.leave()
        rebalance(members)
        leaves.append(time.perf_counter() - begun)
    return joins, leaves


def main() -> None:
    """Gather a group, let it rebalance, print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True, help="the group")
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    with exchanges(arguments.bootstrap, arguments.members + 1) as opened:
        find_coordinator(opened[0], arguments.topic)
        *members, newcomer = (Member(each, arguments.topic) for each in opened)
        gather(members)
        cpu = time.process_time()
        joins, leaves = run(members, newcomer, arguments.rounds)
        print(json.dumps({
            "join_ms": median(joins) * 1e3,
            "leave_ms": median(leaves) * 1e3,
            "client_cpu_ms": (time.process_time() - cpu) * 1e3 / (2 * arguments.rounds),
        }))  # fmt: skip


if __name__ == "__main__":
    main()

"""Kledger and Apache Kafka answer alike, but for what is explained.

Rule: every script is played against both, and every answer compared whole; a difference that
`explained` does not name fails, and so does an explanation of something that is no more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from compat_tests.differential.differences import Asked, Difference, compare, summary, unexplained
from compat_tests.differential.explained import explanations_of
from compat_tests.differential.masks import Masks
from compat_tests.differential.scripts import SCRIPTS
from compat_tests.differential.side import Exchange, Side
from compat_tests.servers import ApacheKafkaServer, KledgerServer, ServerProcess
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest

pytestmark = pytest.mark.slow
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
AT_ONCE = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}
"""Kafka gathers changes of a group for a second before it assigns; kledger does not."""
HEAP = "320m"


class Pair(NamedTuple):
    """Where both servers are, and the versions that both have."""

    ours: str
    theirs: str
    versions: dict[int, range]
    servers: tuple[ServerProcess, ServerProcess]

    def sides(self) -> tuple[Side, Side]:
        """Give two sides that know nothing yet."""
        now_ms = int(time.time() * 1000)
        ours, theirs = (Side(one, self.versions, Masks(now_ms)) for one in self[:2])
        return ours, theirs


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers, and what they have at first."""
    kledger = KledgerServer(tmp_path_factory.mktemp("kledger"), durability="os", settings=SETTINGS)
    kafka = ApacheKafkaServer(
        tmp_path_factory.mktemp("kafka"), settings=SETTINGS | AT_ONCE, heap=HEAP
    )
    with kledger, kafka:
        for one in (kledger, kafka):
            _wait_for_coordinators(one.bootstrap)
        ours, theirs = (_advertised(one.bootstrap) for one in (kledger, kafka))
        versions = {
            key: range(
                max(ours[key].start, theirs[key].start), min(ours[key].stop, theirs[key].stop)
            )
            for key in ours.keys() & theirs.keys()
        }
        yield Pair(kledger.bootstrap, kafka.bootstrap, versions, (kledger, kafka))


def _wait_for_coordinators(bootstrap: str) -> None:
    """Let a server make what its coordinators keep, as the first question for one does.

    A script that does not ask may be the first one that a process of pytest-xdist plays.
    """
    side = Side(bootstrap, {}, Masks(0))
    try:
        for kind in (0, 1):
            finding = FindCoordinatorRequest(key_type=kind, coordinator_keys=["first"])
            side.settle("coordinator", finding, 6)
    finally:
        side.close()


def _advertised(bootstrap: str) -> dict[int, range]:
    side = Side(bootstrap, {}, Masks(0))
    try:
        return side.advertised()
    finally:
        side.close()


def play(pair: Pair, name: str) -> tuple[list[Exchange], list[Exchange]]:
    """Play a script against both at once; give both records.

    Raises:
        ServerFailed: a connection failed because a server has ended.
    """
    sides = pair.sides()
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(SCRIPTS[name], side) for side in sides]:
                done.result()
    except OSError:
        for server in pair.servers:
            server.require_running()
        raise
    finally:
        for side in sides:
            side.close()
    return sides[0].log, sides[1].log


def differences(ours: list[Exchange], theirs: list[Exchange]) -> list[Difference]:
    """Compare two records; the same was asked, in the same order."""
    assert [one[:3] for one in ours] == [one[:3] for one in theirs]
    return [
        found
        for left, right in zip(ours, theirs, strict=True)
        for found in compare(Asked(*left[:3]), left.answer, right.answer)
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_answers_are_the_brokers(pair: Pair, name: str) -> None:
    ours, theirs = play(pair, name)
    found = differences(ours, theirs)
    missing, stale = unexplained(found, explanations_of(name))
    assert not missing, f"{len(missing)} differences\n{summary(missing)}"
    assert not stale, "\n" + "\n".join(map(str, stale))

"""Workers answer as one process does, whose answers are compared with Apache Kafka's.

Rule: as `test_differential`, with one process in the place of Kafka, so that it takes seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from compat_tests.differential.differences import summary
from compat_tests.differential.masks import Masks
from compat_tests.differential.routing import RoutedConnection
from compat_tests.differential.scripts import SCRIPTS
from compat_tests.differential.side import Side
from compat_tests.differential.test_differential import SETTINGS, differences
from compat_tests.servers import KledgerServer

NAMES = (
    "a_second_member_makes_a_new_generation",
    "ends_that_are_refused",
    "fetch_checks_the_leader_epoch",
    "markers_are_written_by_hand",
    "members_commit_offsets",
    "members_of_epochs_commit",
    "offsets_are_committed_from_outside",
    "offsets_are_fetched",
    "offsets_belong_to_transactions",
    "offsets_of_transactions_are_checked",
    "old_producers_are_fenced",
    "partitions_are_added",
    "partitions_are_added_to_transactions",
    "partitions_are_verified",
    "records_of_a_transaction_that_is_over",
    "settings_of_topics_are_changed",
    "topics_are_deleted",
    "transactional_records_are_admitted",
    "transactions_are_interleaved",
    "transactions_end",
    "transactions_end_twice",
    "transactions_time_out",
)
MORE_NAMES = (
    "one_member_joins_and_leaves",
    "produce_keeps_sequences",
    "produce_stores_every_codec",
    "static_members_come_back",
    "transactions_of_no_records",
)
"""Scripts whose requests have one leader or coordinator each, and whose answers name no broker."""


class Pair(NamedTuple):
    """Where both servers are, and the versions that they have."""

    workers: str
    process: str
    versions: dict[int, range]


@pytest.fixture(scope="module")
def pair(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    worker_count = int(pytestconfig.getoption("--workers"))
    if not worker_count:
        pytest.skip("with --workers")
    workers, process = (
        KledgerServer(
            tmp_path_factory.mktemp("kledger"), durability="os", settings=SETTINGS, workers=count
        )
        for count in (worker_count, 0)
    )
    with workers, process:
        side = Side(process.bootstrap, {}, Masks(0))
        versions = side.advertised()
        side.close()
        yield Pair(workers.bootstrap, process.bootstrap, versions)


@pytest.mark.workers("partitions, groups and transactions of several brokers")
@pytest.mark.parametrize(
    "name", [*NAMES, *(pytest.param(each, marks=pytest.mark.slow) for each in MORE_NAMES)]
)
def test_workers_answer_as_one_process(pair: Pair, name: str) -> None:
    now_ms = int(time.time() * 1000)
    sides = [
        Side(bootstrap, pair.versions, Masks(now_ms), connect=RoutedConnection)
        for bootstrap in pair[:2]
    ]
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(SCRIPTS[name], side) for side in sides]:
                done.result()
    finally:
        for side in sides:
            side.close()
    found = differences(sides[0].log, sides[1].log)
    assert not found, f"{len(found)} differences\n{summary(found)}"

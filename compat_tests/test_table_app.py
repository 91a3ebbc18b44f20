"""A table app in the style of Faust (table_app.py): killed and started again, it counts once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from compat_tests import programs
from compat_tests.conftest import MakeTopic
from compat_tests.deadlines import PROGRAM_S
from compat_tests.records import FIRST_TIMESTAMP_MS, STEP_MS, Sample
from compat_tests.test_aiokafka import consuming, producing, send_all

pytestmark = [pytest.mark.peer("aiokafka"), pytest.mark.slow]

PARTITIONS = 2


def views(count: int) -> list[Sample]:
    """Page views: the key is the page."""
    return [
        Sample(
            key=f"page-{i * i % 7}".encode(),
            value=b"view",
            headers=(),
            timestamp_ms=FIRST_TIMESTAMP_MS + i * STEP_MS,
        )
        for i in range(count)
    ]


@pytest.mark.feature("an agent with a table in a changelog, exactly once: killed, table read back")
async def test_table_is_read_back_after_a_kill(
    bootstrap: str, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    source = make_topic(partitions=PARTITIONS)
    changelog = make_topic(partitions=PARTITIONS, cleanup_policy="compact")
    app = ("-m", "compat_tests.table_app", bootstrap, group, source, changelog)
    command, sent = [sys.executable, *app], views(300)
    async with producing(bootstrap) as producer:
        for first, end in ((0, 100), (100, 200), (200, 300)):
            with programs.running(command, tmp_path / "log") as process:
                for partition in range(PARTITIONS):
                    await send_all(producer, source, sent[first:end], partition)
                history = await counted(bootstrap, changelog, sent[:end])
                process.send_signal(signal.SIGKILL)
    expected = {key: list(range(1, total + 1)) for key, total in totals(sent).items()}
    assert expected == history


def totals(sent: list[Sample]) -> Counter[tuple[int, bytes]]:
    """The counts that are right: every partition got the same records."""
    return Counter((partition, one.key or b"") for partition in range(PARTITIONS) for one in sent)


async def counted(
    bootstrap: str, changelog: str, sent: list[Sample]
) -> dict[tuple[int, bytes], list[int]]:
    """Read the changelog until the last counts are right; give every committed count, in order."""
    expected = totals(sent)
    history: dict[tuple[int, bytes], list[int]] = {}
    async with (
        asyncio.timeout(PROGRAM_S),
        consuming(bootstrap, changelog, isolation_level="read_committed") as consumer,
    ):
        while {key: counts[-1] for key, counts in history.items()} != expected:
            one = await consumer.getone()
            history.setdefault((one.partition, one.key), []).append(int(one.value))
    return history

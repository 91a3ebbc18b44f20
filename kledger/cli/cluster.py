"""kledger cluster: make a cluster of brokers without disks, and show its state.

A cluster is the tables of one PostgreSQL database and the objects below one URL of an object store.
`kledger serve --cluster URL --store URL` adds a broker to it; docs/CLUSTER.md tells more.

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
    from kledger.ledger.cluster import ClusterDatabase, ClusterDescription

_VERBS = {
    "init": "make a cluster in a database that has none",
    "import": "copy the data folder of a stopped server into a cluster that has no data",
    "status": "show the owner of a cluster, the brokers that wait, and what the database may lose",
}
_EXIT_CODES = "exit code 0: done; 1: the database failed; 2: a mistake of the caller"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = add_verbs(parser, _VERBS, _EXIT_CODES)
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

    verb = {"init": _init, "import": _import, "status": _status}[arguments.verb]
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


def _init(database: "ClusterDatabase", arguments: argparse.Namespace, settings: Settings) -> None:
    store = settings.cluster.store
    if store is None:
        raise SettingError("--store: expected the URL of an object store, got none")
    try:
        ObjectStoreTiers(settings.offload.options).check(store)
        _check_store(store, settings)
    except (InvalidArgument, StoreUnusable) as error:
        raise SettingError(f"--store: {error}") from None
    cluster_id = settings.kafka.cluster_id or uuid_text(SystemEntropy().uuid4())
    database.create(cluster_id=cluster_id, store=store)
    _show(database.describe(), arguments)


def _import(database: "ClusterDatabase", arguments: argparse.Namespace, settings: Settings) -> None:
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


def _status(database: "ClusterDatabase", arguments: argparse.Namespace, _: Settings) -> None:
    _show(database.describe(), arguments)


def _show(cluster: "ClusterDescription", arguments: argparse.Namespace) -> None:
    sessions = [
        {
            **each._asdict(),
            "state": each.state.name.lower(),
            "broker": each.broker._asdict(),
        }
        for each in cluster.sessions
    ]
    print_result(arguments, asdict(cluster) | {"sessions": sessions}, _lines(cluster))


def _lines(cluster: "ClusterDescription") -> Iterator[str]:
    from kledger.ledger.cluster import loss_risks

    yield f"cluster {cluster.cluster_id}, store {cluster.store}, format {cluster.format}"
    risks = loss_risks(cluster)
    for risk in risks:
        yield f"database: {risk}"
    if not risks:
        yield f"database: commits wait for the standby servers {cluster.synchronous}"
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
            f"{each.silent_ms / 1000:.1f} s ago",
            each.group_count,
        ]
        for each in cluster.sessions
    ]
    headings = ["SESSION", "STATE", "BROKER", "KAFKA", "EPOCH", "COMMITS", "SEEN", "GROUPS"]
    yield from table(headings, rows)

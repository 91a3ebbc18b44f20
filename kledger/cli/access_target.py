"""Access target: what a command changes: a stopped store, a cluster, or a running server.

Rule: `--data` names the folder of a stopped server, `--cluster-url` the database of a cluster of
nodes, running or not, `--kafka` the listener of a running server. A mistake of the caller (a store
in use, a file that cannot be read) is exit code 2, a failure of a store or a server 1; both print
one line.
Must not know: users, access rules.
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kledger.broker_client.broker_connection import ConnectionLost, TlsRefused
from kledger.broker_client.broker_connections import KafkaFailed
from kledger.cli import failure, usage_error
from kledger.cli.command_config import CommandConfigMistake
from kledger.ledger import LedgerError, StoreInUse, StoreUnusable
from kledger.security.acl_state import InvalidRule
from kledger.security.authorizer import TooManyRules
from kledger.security.private_folder import UnsafeFolder, keep_private
from kledger.security.users import TooManyUsers
from kledger.workers.worker_plan import WorkersMistake

_MISTAKES = (
    StoreInUse, StoreUnusable, UnsafeFolder, WorkersMistake, InvalidRule, CommandConfigMistake,
)  # fmt: skip
_FAILURES = (LedgerError, TooManyRules, TooManyUsers, KafkaFailed, ConnectionLost, TlsRefused)


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags that say where; one of them is required."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", metavar="DIR", help="the folder of a stopped server")
    where.add_argument(
        "--cluster-url", metavar="URL",
        help="the database of a cluster of nodes, running or not; its password: PGPASSWORD",
    )  # fmt: skip
    where.add_argument(
        "--kafka", metavar="HOST:PORT", type=servers,
        help="a listener of a running server, or several, separated by commas",
    )  # fmt: skip
    parser.add_argument(
        "--command-config", metavar="FILE", type=Path,
        help="Kafka's client properties for --kafka: security.protocol, sasl.mechanism, …",
    )  # fmt: skip


def servers(text: str) -> str:
    """Return HOST:PORT[,HOST:PORT] as it was given, for argparse."""
    for each in text.split(","):
        host, _, port = each.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {each!r}")
    return text


def run_on_target(
    arguments: argparse.Namespace, work: Callable[[], Coroutine[Any, Any, int]], *, creates: bool
) -> int:
    """Do one verb; return the exit code.

    Args:
        arguments: with the flags of `add_target_arguments`.
        work: opens the store, or connects, and does it.
        creates: whether a folder that does not exist is made.
    """
    try:
        if arguments.data is not None:
            keep_private(arguments.data)
            if not creates and not Path(arguments.data).is_dir():
                return usage_error(f"{arguments.data}: there is no such folder")
        return asyncio.run(work())
    except _MISTAKES as error:
        return usage_error(str(error))
    except _FAILURES as error:
        return failure(str(error))

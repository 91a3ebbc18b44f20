"""kledger user: add, list and remove the users of a stopped store.

Users of a running server are changed with Kafka's tools (`kafka-configs --entity-type users`).

Exit code 0: done; 1: there is no such user, or the store is damaged; 2: a mistake of the caller: no
password, a store in use.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from kledger.cli import add_verbs, failure, usage_error
from kledger.cli.plain_text import table
from kledger.cli.stored_tables import stored_users
from kledger.ledger import LedgerError, StoreInUse, StoreUnusable
from kledger.runtime.entropy import SystemEntropy
from kledger.security.credentials import (
    BY_SASL_NAME,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    PASSWORD_BYTES_MAX,
    PLAIN,
    PLAIN_HASH,
    SALT_BYTES,
    ScramCredential,
    check_iterations,
    check_user_name,
    make_credential,
)
from kledger.security.private_folder import UnsafeFolder, keep_private
from kledger.security.users import STORED_MECHANISMS, TooManyUsers, Users
from kledger.workers.worker_plan import WorkersMistake

_VERBS = {
    "add": "add a user, or set the password of one",
    "list": "list the users with their mechanisms, one a line",
    "remove": "remove a user, or one mechanism of a user",
}
_EXIT_CODES = "exit code 0: done; 1: there is no such user; 2: a mistake of the caller"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = add_verbs(parser, _VERBS, _EXIT_CODES)
    for verb, each in added.items():
        each.add_argument("--data", metavar="DIR", required=True, help="the folder of the store")
        if verb != "list":
            each.add_argument("name", metavar="NAME")
    names = ", ".join(STORED_MECHANISMS)
    added["list"].add_argument("--json", action="store_true", help="print one JSON document")
    added["add"].add_argument(
        "--mechanism", metavar="NAME", action="append", required=True, dest="mechanisms",
        help=f"{names}; may be repeated",
    )  # fmt: skip
    added["add"].add_argument(
        "--password-file", metavar="FILE", type=Path, required=True,
        help="the password is its first line; never an argument, which others can see",
    )  # fmt: skip
    added["add"].add_argument(
        "--iterations", metavar="N", type=int, default=ITERATIONS_MIN,
        help=f"of SCRAM, {ITERATIONS_MIN} to {ITERATIONS_MAX} (default: {ITERATIONS_MIN})",
    )  # fmt: skip
    added["remove"].add_argument(
        "--mechanism", metavar="NAME", action="append", dest="mechanisms",
        help=f"{names}; may be repeated (default: all)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Open the store and do one verb; return the exit code."""
    verbs: dict[str, Callable[[Users, argparse.Namespace], Awaitable[int]]] = {
        "add": _add, "list": _list, "remove": _remove,
    }  # fmt: skip
    try:
        keep_private(arguments.data)
        if arguments.verb != "add" and not Path(arguments.data).is_dir():
            return usage_error(f"{arguments.data}: there is no such folder")
        return asyncio.run(_on_store(arguments, verbs[arguments.verb]))
    except (StoreInUse, StoreUnusable, UnsafeFolder, WorkersMistake) as error:
        return usage_error(str(error))
    except (LedgerError, TooManyUsers) as error:
        return failure(str(error))


async def _on_store(
    arguments: argparse.Namespace, verb: Callable[[Users, argparse.Namespace], Awaitable[int]]
) -> int:
    if arguments.verb == "add":
        try:
            check_user_name(arguments.name)
            _check_iterations(arguments.iterations)
            arguments.password = read_password(arguments.password_file)
        except ValueError as error:
            return usage_error(str(error))
    for mechanism in getattr(arguments, "mechanisms", None) or ():
        if mechanism not in STORED_MECHANISMS:
            return usage_error(
                f"--mechanism: expected {', '.join(STORED_MECHANISMS)}, got {mechanism!r}"
            )
    async with stored_users(arguments.data) as users:
        return await verb(users, arguments)


def _check_iterations(count: int) -> None:
    try:
        check_iterations(count)
    except ValueError:
        raise ValueError(
            f"--iterations: expected {ITERATIONS_MIN} to {ITERATIONS_MAX}, got {count}"
        ) from None


def read_password(file: Path) -> str:
    """Return the first line of a file.

    Raises:
        ValueError: it cannot be read, or has no password; no message has anything of it.
    """
    try:
        with file.open("rb") as opened:
            line = opened.readline(PASSWORD_BYTES_MAX + 2)
    except OSError as error:
        raise ValueError(f"--password-file: {file}: {error.strerror}") from None
    try:
        password = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"--password-file: {file}: expected UTF-8") from None
    if not password or len(password) > PASSWORD_BYTES_MAX:
        raise ValueError(
            f"--password-file: {file}: expected a password of 1 to {PASSWORD_BYTES_MAX} bytes"
        )
    return password


def new_credential(mechanism: str, password: str, iterations: int) -> ScramCredential:
    """Return the credential of a password; takes milliseconds."""
    salt = SystemEntropy().token(SALT_BYTES)
    if mechanism == PLAIN:
        return make_credential(PLAIN_HASH, password, salt, ITERATIONS_MAX)
    return make_credential(BY_SASL_NAME[mechanism], password, salt, iterations)


async def _add(users: Users, arguments: argparse.Namespace) -> int:
    await users.alter(
        ((arguments.name, each), new_credential(each, arguments.password, arguments.iterations))
        for each in arguments.mechanisms
    )
    return 0


async def _list(users: Users, arguments: argparse.Namespace) -> int:
    rows = [
        (name, mechanism, credential.iterations)
        for name in users.names
        for mechanism, credential in users.credentials_of(name).items()
    ]
    if arguments.json:
        keys = ("user", "mechanism", "iterations")
        json.dump([dict(zip(keys, row, strict=True)) for row in rows], sys.stdout)
        print()
    elif rows:
        print("\n".join(table(("USER", "MECHANISM", "ITERATIONS"), rows)))
    return 0


async def _remove(users: Users, arguments: argparse.Namespace) -> int:
    known = users.credentials_of(arguments.name)
    mechanisms = arguments.mechanisms or list(known)
    missing = [each for each in mechanisms if each not in known]
    if missing or not mechanisms:
        of = f" with {', '.join(missing)}" if missing else ""
        return failure(f"{arguments.name}: there is no such user{of}")
    await users.alter(((arguments.name, each), None) for each in mechanisms)
    return 0

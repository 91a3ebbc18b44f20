"""kledger user: add, list and remove users, of a stopped store, a cluster or a running server.

A running server (`--kafka`) is asked as Kafka's tools do (`kafka-configs --entity-type users`);
users of PLAIN are added while it is stopped (`--data`), or in the database of a cluster of nodes
(`--cluster-url`).

Exit code 0: done; 1: there is no such user, the server refuses it, or the store is damaged; 2: a
mistake of the caller: no password, a store in use.
"""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from kledger.cli import add_verbs, failure, usage_error
from kledger.cli.access_target import add_target_arguments, run_on_target
from kledger.cli.plain_text import table
from kledger.cli.running_server import RunningUsers, running_server
from kledger.cli.stored_tables import stored_users
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
from kledger.security.users import STORED_MECHANISMS, Users

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
        add_target_arguments(each)
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


class UserTable(Protocol):
    """The users of a store, or of a running server."""

    async def listed(self) -> list[tuple[str, str, int]]:
        """Return user, mechanism and iterations of each credential."""
        ...

    async def set_password(
        self, user: str, mechanisms: Iterable[str], password: str, iterations: int
    ) -> None:
        """Add credentials of one password, or replace them."""
        ...

    async def remove(self, user: str, mechanisms: Iterable[str]) -> None:
        """Remove credentials that exist."""
        ...


class _StoredUsers:
    """The users of a stopped store, or of a cluster."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def listed(self) -> list[tuple[str, str, int]]:
        return [
            (name, mechanism, credential.iterations)
            for name in self._users.names
            for mechanism, credential in self._users.credentials_of(name).items()
        ]

    async def set_password(
        self, user: str, mechanisms: Iterable[str], password: str, iterations: int
    ) -> None:
        await self._users.alter(
            ((user, each), new_credential(each, password, iterations)) for each in mechanisms
        )

    async def remove(self, user: str, mechanisms: Iterable[str]) -> None:
        await self._users.alter(((user, each), None) for each in mechanisms)


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    return run_on_target(arguments, lambda: _run(arguments), creates=arguments.verb == "add")


async def _run(arguments: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[UserTable, argparse.Namespace], Awaitable[int]]] = {
        "add": _add, "list": _list, "remove": _remove,
    }  # fmt: skip
    if arguments.verb == "add":
        try:
            check_user_name(arguments.name)
            _check_iterations(arguments.iterations)
            arguments.password = read_password(arguments.password_file)
        except ValueError as error:
            return usage_error(str(error))
    known = STORED_MECHANISMS if arguments.kafka is None else tuple(BY_SASL_NAME)
    for mechanism in getattr(arguments, "mechanisms", None) or ():
        if mechanism not in known:
            return usage_error(f"--mechanism: expected {', '.join(known)}, got {mechanism!r}")
    async with _users(arguments) as users:
        return await verbs[arguments.verb](users, arguments)


@asynccontextmanager
async def _users(arguments: argparse.Namespace) -> AsyncIterator[UserTable]:
    if arguments.kafka is None:
        async with stored_users(arguments.data, arguments.cluster_url) as users:
            yield _StoredUsers(users)
    else:
        with running_server(arguments.kafka, arguments.command_config) as brokers:
            yield RunningUsers(brokers)


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


async def _add(users: UserTable, arguments: argparse.Namespace) -> int:
    await users.set_password(
        arguments.name, arguments.mechanisms, arguments.password, arguments.iterations
    )
    return 0


async def _list(users: UserTable, arguments: argparse.Namespace) -> int:
    rows = await users.listed()
    if arguments.json:
        keys = ("user", "mechanism", "iterations")
        json.dump([dict(zip(keys, row, strict=True)) for row in rows], sys.stdout)
        print()
    elif rows:
        print("\n".join(table(("USER", "MECHANISM", "ITERATIONS"), rows)))
    return 0


async def _remove(users: UserTable, arguments: argparse.Namespace) -> int:
    known = [mechanism for name, mechanism, _ in await users.listed() if name == arguments.name]
    mechanisms = arguments.mechanisms or known
    missing = [each for each in mechanisms if each not in known]
    if missing or not mechanisms:
        of = f" with {', '.join(missing)}" if missing else ""
        return failure(f"{arguments.name}: there is no such user{of}")
    await users.remove(arguments.name, mechanisms)
    return 0

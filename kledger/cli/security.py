"""kledger security: what a server with TLS, logins and access rules needs, made in one step.

`init` writes into the folder `security` of the data folder: an authority (`ca.pem`, `ca.key`), the
server's key and certificate (`server.pem`), settings for `kledger serve --config` (`kledger.toml`)
and for Kafka's tools (`client.properties`); it adds a first user, which may do everything.

Exit code 0: done; 1: the store is damaged; 2: a mistake of the caller: the files exist, a store in
use.
"""

import argparse
import asyncio
import json
import socket
from pathlib import Path

from kledger.cli import add_verbs, failure, usage_error
from kledger.cli.stored_tables import stored_users
from kledger.cli.user import new_credential, read_password
from kledger.ledger import LedgerError, StoreInUse, StoreUnusable
from kledger.runtime.clock import SystemClock
from kledger.runtime.entropy import SystemEntropy
from kledger.security.authorizer import STANDARD_AUTHORIZER
from kledger.security.credentials import ITERATIONS_MIN, check_user_name
from kledger.security.private_folder import UnsafeFolder, keep_private
from kledger.security.tls.certificates import SERVER_USE, make_authority, make_certificate
from kledger.setting_values import SettingError, check_range, joined_address, split_address
from kledger.settings import WORKERS_MAX, Settings
from kledger.workers.worker_plan import WorkersMistake
from kledger.workers.workers_folder import WorkersFolder

_VERBS = {"init": "make an authority, a certificate, a first user and settings"}
_EXIT_CODES = "exit code 0: done; 1: the store is damaged; 2: a mistake of the caller"
FOLDER = "security"
MECHANISM = "SCRAM-SHA-512"
PASSWORD_BYTES = 24
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb and its flags."""
    init = add_verbs(parser, _VERBS, _EXIT_CODES)["init"]
    init.add_argument("--data", metavar="DIR", required=True, help="the folder of the store")
    init.add_argument(
        "--kafka", metavar="HOST:PORT", default="127.0.0.1:9092",
        help="where to listen for Kafka clients (default: 127.0.0.1:9092)",
    )  # fmt: skip
    init.add_argument(
        "--host", metavar="NAME", action="append", default=[], dest="hosts",
        help="a name or address by which clients reach the server; may be repeated; this machine's "
        "own are in the certificate anyway",
    )  # fmt: skip
    init.add_argument(
        "--workers", metavar="N", type=int, help="make the folder of a server with N workers"
    )
    init.add_argument("--user", metavar="NAME", default="admin", help="(default: admin)")
    init.add_argument(
        "--password-file", metavar="FILE", type=Path,
        help="the password is its first line (default: a random one, in client.properties)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Make everything; return the exit code."""
    try:
        check_user_name(arguments.user)
        host, port = split_address("--kafka", arguments.kafka)
        password = SystemEntropy().token(PASSWORD_BYTES).hex()
        if arguments.password_file is not None:
            password = read_password(arguments.password_file)
        workers = arguments.workers
        if workers is not None:
            check_range("--workers", workers, 1, WORKERS_MAX)
        keep_private(arguments.data)
    except (SettingError, UnsafeFolder, ValueError) as error:
        return usage_error(str(error))
    folder = Path(arguments.data).absolute() / FOLDER
    if folder.exists():
        return usage_error(f"{folder}: there is such a folder already; nothing was changed")
    try:
        if workers is not None:
            WorkersFolder(arguments.data, count=workers, node_id=Settings().kafka.node_id).close()
        asyncio.run(_add_user(arguments.data, arguments.user, password))
        folder.mkdir()
        hosts = [*LOCAL_HOSTS, socket.gethostname(), host, *arguments.hosts]
        _write_keys(folder, [each for each in hosts if each not in ("0.0.0.0", "::")])
        _write_settings(folder, arguments.user, password, host, port)
        if workers is not None:
            with (folder / "kledger.toml").open("a") as settings:
                settings.write(f"\n[server]\nworkers = {workers}\n")
    except (StoreInUse, StoreUnusable, WorkersMistake) as error:
        return usage_error(str(error))
    except (LedgerError, OSError) as error:
        return failure(str(error))
    print(
        f"start the server:  kledger serve --data {arguments.data} --config {folder}/kledger.toml"
    )
    print(f"Kafka's tools:     --command-config {folder}/client.properties")
    return 0


async def _add_user(data: str, name: str, password: str) -> None:
    async with stored_users(data) as users:
        credential = new_credential(MECHANISM, password, ITERATIONS_MIN)
        await users.alter({(name, MECHANISM): credential}.items())


def _write_keys(folder: Path, hosts: list[str]) -> None:
    now_ms = SystemClock().now_ms()
    authority = make_authority("kledger authority", now_ms)
    server = make_certificate(authority, "kledger", use=SERVER_USE, now_ms=now_ms, hosts=hosts)
    (folder / "ca.key").write_text(authority.key)
    (folder / "ca.pem").write_text(authority.certificate)
    (folder / "server.pem").write_text(server.key + server.certificate)


def _write_settings(folder: Path, user: str, password: str, host: str, port: int) -> None:
    def toml(name: str, value: str) -> str:
        return f"{name} = {json.dumps(value)}\n"

    (folder / "kledger.toml").write_text(
        "[kafka]\n"
        + toml("listeners", f"SASL_SSL://{joined_address(host, port)}")
        + toml("ssl.keystore.location", str(folder / "server.pem"))
        + toml("sasl.enabled.mechanisms", MECHANISM)
        + toml("authorizer.class.name", STANDARD_AUTHORIZER)
        + toml("super.users", f"User:{user}")
        + "\n[native]\ntls = true\n"
    )
    quoted_password = password.replace("\\", "\\\\").replace('"', '\\"')
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{quoted_password}";'
    )
    shown_host = "127.0.0.1" if host == "0.0.0.0" else host
    (folder / "client.properties").write_text(
        f"bootstrap.servers={joined_address(shown_host, port)}\n"
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={MECHANISM}\n"
        f"sasl.jaas.config={_property(login)}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={_property(str(folder / 'ca.pem'))}\n"
    )


def _property(value: str) -> str:
    """Return a value as files of Java's properties have it."""
    return value.replace("\\", "\\\\")

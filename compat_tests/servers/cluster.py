"""kledger without a disk as a process: a broker of a cluster that only it knows.

Rule: a start after an end is another life of the same broker. After stop() it owns the cluster at
once, after kill() when the session of the life before has been silent for long enough.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compat_tests.deadlines import PROGRAM_S
from compat_tests.servers.kledger import KledgerServer, kledger_program
from compat_tests.servers.process import ServerFailed
from kledger.process import arguments_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStores:
    """Where a cluster keeps its data.

    Attributes:
        url: of the database.
        store: the URL of the object store.
        settings: with which brokers and commands reach them.
    """

    url: str
    store: str
    settings: Mapping[str, object]

    @classmethod
    def of_folder(cls, database_url: str, folder: Path) -> Self:
        """Return those of a test: a database without a synchronous standby, and a folder."""
        return cls(
            url=database_url,
            store=folder.absolute().as_uri(),
            settings={"cluster.sql.asynchronous": "true"},
        )

    def arguments(self) -> list[str]:
        """Return those of `kledger serve`."""
        return ["--cluster", self.url, "--store", self.store, *arguments_for({**self.settings})]

    def make_cluster(self, *, nodes: int = 1) -> None:
        """Make a cluster where none is; one node is a cluster with one owner."""
        words = ["--store", self.store, "--nodes", str(nodes), *arguments_for({**self.settings})]
        self._run("init", *words)

    def status(self) -> str:
        """Return what `kledger cluster status` prints."""
        return self._run("status")

    def _run(self, verb: str, *words: str) -> str:
        done = subprocess.run(
            [kledger_program(), "cluster", verb, self.url, *words],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"kledger cluster {verb}: {done.stdout}{done.stderr}")
        return done.stdout.rstrip()


class ClusterServer(KledgerServer):
    """`kledger serve --cluster` over a database and a folder of objects."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        *,
        settings: Mapping[str, str] | None = None,
        is_native: bool = False,
        stores: ClusterStores | None = None,
    ) -> None:
        """Take the URL of an empty database, or other stores than of a test; see KledgerServer."""
        super().__init__(folder, settings=settings, is_native=is_native)
        self._stores = stores or ClusterStores.of_folder(database_url, self.data_folder)
        self._is_made = False

    def prepare(self) -> None:
        """Reserve the ports, and make the cluster, at the first start."""
        super().prepare()
        if not self._is_made:
            self._stores.make_cluster()
            self._is_made = True

    def storage(self) -> list[str]:
        """See KledgerServer."""
        return self._stores.arguments()

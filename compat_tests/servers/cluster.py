"""kledger without a disk as a process: a broker of a cluster that only it knows.

Rule: a start after an end is another life of the same broker. After stop() it owns the cluster at
once, after kill() when the session of the life before has been silent for long enough.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from compat_tests.deadlines import PROGRAM_S
from compat_tests.servers.kledger import KledgerServer, kledger_program
from compat_tests.servers.process import ServerFailed


class ClusterServer(KledgerServer):
    """`kledger serve --cluster` over a database and a folder of objects."""

    leader_epoch = 1  # that of the first owner of the cluster

    def __init__(
        self,
        folder: Path,
        database_url: str,
        *,
        settings: Mapping[str, str] | None = None,
        is_native: bool = False,
    ) -> None:
        """Take the URL of an empty database; see KledgerServer."""
        super().__init__(folder, settings=settings, is_native=is_native)
        self._database_url = database_url
        self._is_made = False

    def prepare(self) -> None:
        """Reserve the ports, and make the cluster, at the first start."""
        super().prepare()
        if not self._is_made:
            make_cluster(self._database_url, self.data_folder)
            self._is_made = True

    def storage(self) -> list[str]:
        """See KledgerServer; the database of tests has no synchronous standby."""
        accepted = ["--set", "cluster.sql.asynchronous=true"]
        return ["--cluster", self._database_url, "--store", store_url(self.data_folder), *accepted]


def store_url(folder: Path) -> str:
    """Return the URL of a folder of objects."""
    return folder.absolute().as_uri()


def make_cluster(database_url: str, folder: Path) -> None:
    """Make a cluster in an empty database, over a folder of objects."""
    done = subprocess.run(
        [kledger_program(), "cluster", "init", database_url, "--store", store_url(folder)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    if done.returncode:
        raise ServerFailed(f"kledger cluster init: {done.stdout}{done.stderr}")

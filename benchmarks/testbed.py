"""Testbed: the servers that most cases share, their topics, and what a load cost them.

Rule: only the server's own process is measured; between two loads its topic is deleted and what is
left to write goes to the disk, and between two cases the servers come to rest (both give space back
in the background), so that no load pays for the one before.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.cases import FSYNC, KAFKA_SYNC, OS, WORKERS
from compat_tests.servers import ApacheKafkaServer, KledgerServer, ServerProcess

_ADMIN_TIMEOUT_S = 120
_REST_S = 3
_REST_CPU_S = 0.15  # of each second; Apache Kafka takes half of that when nothing is asked of it
_SETTLE_S_MAX = 40
_numbers = itertools.count(1)


def make_server(
    subject: str,
    folder: Path,
    *,
    is_native: bool = False,
    settings: Mapping[str, str] | None = None,
) -> ServerProcess:
    """Build the server of a subject, not started.

    Args:
        subject: which one.
        folder: where it keeps everything.
        is_native: kledger's listens for native clients, too.
        settings: by Kafka's names, which kledger knows.
    """
    if subject in (OS, FSYNC, WORKERS):
        return KledgerServer(
            folder,
            durability="fsync" if subject == FSYNC else "os",
            is_native=is_native,
            settings=settings,
            workers=2 if subject == WORKERS else 0,
        )
    return ApacheKafkaServer(folder, settings=settings)


def server_name(subject: str) -> str:
    """Name the process behind a subject; two subjects may share one."""
    return "kafka" if subject.startswith("Kafka") else subject.replace(",", "").replace(" ", "-")


@dataclass(slots=True)
class Usage:
    """What a load cost the server; filled in when the load is over."""

    cpu_s: float = 0.0


@contextmanager
def measured(server: ServerProcess) -> Iterator[Usage]:
    """Measure the CPU time of a server while the body runs."""
    usage = Usage()
    before = server.cpu_seconds()
    yield usage
    usage.cpu_s = server.cpu_seconds() - before


class Testbed:
    """Servers that are started when first asked for and stopped together."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        """Keep all data below `folder`."""
        self.folder = folder
        self._servers: dict[str, ServerProcess] = {}
        self._exits = ExitStack()

    def server(self, subject: str) -> ServerProcess:
        """Give the running server of a subject."""
        name = server_name(subject)
        if name not in self._servers:
            started = self._exits.enter_context(make_server(subject, self.folder / name))
            self._servers[name] = started
        server = self._servers[name]
        if not server.is_running():
            # It died under an earlier load, whose failure is noted; the others still count.
            server.kill()
            server.start()
        return server

    def settle(self) -> None:
        """Wait until no running server has done much for some seconds, or for long enough."""
        quiet = 0
        for _ in range(_SETTLE_S_MAX):
            servers = [each for each in self._servers.values() if each.is_running()]
            before = [each.cpu_seconds() for each in servers]
            threading.Event().wait(1.0)
            spent = [each.cpu_seconds() - was for each, was in zip(servers, before, strict=True)]
            quiet = quiet + 1 if all(each < _REST_CPU_S for each in spent) else 0
            if quiet == _REST_S:
                return

    @contextmanager
    def own_server(
        self, subject: str, *, is_native: bool = False, settings: Mapping[str, str] | None = None
    ) -> Iterator[ServerProcess]:
        """Give a fresh server, not started, that is gone with the body; see make_server()."""
        folder = self.folder / f"own-{next(_numbers)}"
        server = make_server(subject, folder, is_native=is_native, settings=settings)
        try:
            yield server
        finally:
            server.stop()
            remove_tree(server.folder)

    @contextmanager
    def topic(self, subject: str, partitions: int) -> Iterator[str]:
        """Create a topic for one load and delete it, and its data, behind it."""
        bootstrap = self.server(subject).bootstrap
        name = create_topic(subject, bootstrap, partitions)
        try:
            yield name
        finally:
            with suppress(KafkaException):
                admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
                admin.delete_topics([name])[name].result(_ADMIN_TIMEOUT_S)
            os.sync()

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop every server."""
        self._exits.close()


def create_topic(
    subject: str, bootstrap: str, partitions: int, *, config: Mapping[str, str] | None = None
) -> str:
    """Create a topic as a subject wants it, with further configs, and give its name."""
    name = f"bench-{next(_numbers)}"
    config = {"file.delete.delay.ms": "0", **(config or {})}
    if subject == KAFKA_SYNC:
        config["flush.messages"] = "1"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    admin.create_topics([new])[name].result(_ADMIN_TIMEOUT_S)
    return name


def alter_topic(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    """Set some configs of a topic."""
    _alter(bootstrap, ResourceType.TOPIC, topic, config)


def alter_broker(bootstrap: str, config: Mapping[str, str]) -> None:
    """Set some configs of a broker that is the only one."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    (broker_id,) = admin.list_topics(timeout=_ADMIN_TIMEOUT_S).brokers
    _alter(bootstrap, ResourceType.BROKER, str(broker_id), config)


def _alter(bootstrap: str, kind: ResourceType, name: str, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(_ADMIN_TIMEOUT_S)


def remove_tree(folder: Path) -> None:
    """Delete a folder of ours with all that is in it."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    with suppress(FileNotFoundError):
        folder.rmdir()

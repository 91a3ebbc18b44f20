"""Apache Kafka as a process: one node that is broker and controller, with its own defaults.

Rule: only what a single node on loopback cannot do without is set; everything measured or compared
is Kafka as it comes, with the heap of its own start script unless the owner wants less.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from compat_tests import peers
from compat_tests.servers.process import ServerFailed, ServerProcess

_CLUSTER_ID = "a2xlZGdlcnJlZmVyZW5jZQ"
# What the start script of the distribution gives the virtual machine.
_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class ApacheKafkaServer(ServerProcess):
    """A single KRaft node from the jars of the registry."""

    name = "Apache Kafka"

    def __init__(
        self, folder: Path, *, settings: Mapping[str, str] | None = None, heap: str = "1G"
    ) -> None:
        """Take `settings` as lines of server.properties, `heap` as Java's options want it."""
        super().__init__(folder)
        self.settings = dict(settings or {})
        self._heap = heap
        self._controller_port = 0

    @property
    def controller(self) -> str:
        """The address of the controller, once `prepare` has chosen it."""
        return f"{self.host}:{self._controller_port}"

    @property
    def properties_file(self) -> Path:
        """The server's configuration."""
        return self.folder / "server.properties"

    def prepare(self) -> None:
        """Reserve ports, write the configuration and format the folder when it is new."""
        super().prepare()
        if not self.port:
            self.port, self._controller_port = self.reserve_port(), self.reserve_port()
        lines = self._properties() | self.settings
        self.properties_file.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        if not (self.data_folder / "meta.properties").exists():
            self._format()

    def _properties(self) -> dict[str, str]:
        """Give the settings that a single node on loopback needs."""
        controller = self.controller
        one_replica = (
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
            "transaction.state.log.min.isr",
            "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.min.isr",
        )
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_folder),
        } | dict.fromkeys(one_replica, "1")

    def _format(self) -> None:
        """Write the storage's first files, as an operator does once."""
        words = ["format", "-t", _CLUSTER_ID, "-c", str(self.properties_file)]
        command = peers.java_command("kafka.tools.StorageTool", *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerFailed(f"Apache Kafka: format failed: {done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        """Give the command line of the broker."""
        options = (f"-Xmx{self._heap}", f"-Xms{self._heap}", *_JVM)
        # Standard output carries nothing that anybody reads, and must not fill up.
        words = peers.java_command("kafka.Kafka", str(self.properties_file), options=options)
        return ["/bin/sh", "-c", 'exec "$@" >&2', "sh", *words]

    def wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """It has nothing to say: its ports were chosen before."""

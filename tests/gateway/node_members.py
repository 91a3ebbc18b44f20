"""The nodes of one process whose shared tables are a file in a folder, in place of a database."""

from dataclasses import dataclass, replace
from pathlib import Path

from kledger.ledger.shared_tables import SharedTables
from kledger.nodes.node_member import DatabaseTables, NodeMembers, TableSource
from kledger.runtime.clock import SystemClock
from kledger.runtime.containment import Containment
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.settings import ServerSettings, Settings

SECRET = bytes(range(32))


@dataclass
class DescriptionOfTest:
    """A cluster of nodes."""

    nodes: int
    peer_secret: bytes = SECRET


class FolderTables:
    """Shared rows in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._supervisor = Supervisor()
        self.is_closed = False

    async def tables(self, containment: Containment) -> SharedTables:
        return await SharedTables.open(
            self._folder,
            containment=containment,
            clock=ManualClock(),
            supervisor=self._supervisor,
        )

    async def close(self) -> None:
        self.is_closed = True
        await self._supervisor.close()


class NodeMembersOfTest(NodeMembers):
    """Nodes whose ports are any free ones of this machine, unless settings are given."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        settings: Settings | None = None,
        secret: bytes = SECRET,
        database_url: str | None = None,
    ) -> None:
        async def open_tables() -> TableSource:
            if database_url is not None:
                return await DatabaseTables.open(database_url, SystemClock())
            return FolderTables(folder)

        super().__init__(
            open_tables, DescriptionOfTest(nodes, secret), settings or settings_of_nodes()
        )


def settings_of_nodes(kafka: str = "127.0.0.1:0", native: str | None = None) -> Settings:
    """Return the settings of a server without anything on a disk."""
    server = ServerSettings(memory=True, kafka=kafka, native=native)
    settings = Settings(server=server)
    return replace(settings, kafka=replace(settings.kafka, group_initial_rebalance_delay_ms=0))

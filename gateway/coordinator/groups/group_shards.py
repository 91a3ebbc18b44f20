"""Group shards: what the coordinator of groups keeps by shard: groups, and their offsets.

Rule: a shard has the groups of both kinds, and the committed and pending offsets of these; they are
loaded together and forgotten together.
Must not know: which shards are attached, and when.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kledger.gateway.coordinator.coordinator_shards_state import Includes
from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
from kledger.gateway.coordinator.groups.group_table import GroupTable
from kledger.ledger import LedgerStore


@dataclass(frozen=True, slots=True)
class GroupShards:
    """`ShardRecords` of groups."""

    store: LedgerStore
    table: GroupTable
    offsets: GroupOffsets

    def load_shards(self) -> None:
        """Load all groups with their offsets."""
        self.table.load()
        self.offsets.load()

    def read_shards(self, is_included: Includes) -> Callable[[], None]:
        """Read groups and offsets; return what lets them hold."""
        groups, offsets = self.table.read(is_included), self.offsets.read(is_included)

        def begin() -> None:
            self.table.load(groups)
            self.offsets.load(offsets)

        return begin

    def stop_shards(self, is_included: Includes) -> None:
        """Drop groups, with the requests that wait for them."""
        self.table.stop(is_included)

    async def settle_shards(self, _: Includes) -> None:
        """Wait until every write so far has ended: nothing begins one for a detached shard."""
        await self.store.flush()

    def unload_shards(self, is_included: Includes) -> None:
        """Forget records and offsets."""
        self.table.unload(is_included)
        self.offsets.unload(is_included)

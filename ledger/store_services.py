"""Store services: what the handles of one store share.

Rule: each has one owner: ids come from one counter, metadata versions from one table, and one
committer writes to the engine.
Must not know: managed ledgers.
"""

from dataclasses import dataclass, field

from kledger.ledger.commits.committer import Committer
from kledger.ledger.config import StoreConfig
from kledger.ledger.engine.base import Row, StorageEngine
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import encode_counter
from kledger.ledger.offload.tier_services import TierServices
from kledger.ledger.reads.cold_reads import ColdReads
from kledger.ledger.reads.entry_cache import EntryCache
from kledger.ledger.reads.read_counts import ReadCountTable
from kledger.ledger.revision_counts import RevisionCounts
from kledger.ledger.storage_health import StorageHealth
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers


class IdCounter:
    """Allocates ledger ids and managed ledger ids, each once in the life of a store.

    The row of the counter is in the same atomic group as the first use of an id, so a durable id is
    never allocated again, and no ids need to be reserved.
    """

    def __init__(self, next_id: int) -> None:
        self._next_id = next_id

    def take(self) -> int:
        """Return a new id; the caller commits `row()` together with its first use."""
        self._next_id += 1
        return self._next_id - 1

    def row(self) -> Row:
        """Return the row that makes all ids allocated so far final."""
        return keys.ID_COUNTER, encode_counter(self._next_id)


class MetadataVersions:
    """The newest submitted metadata version of every open managed ledger.

    A handle that changes metadata must have the newest version; otherwise it lost its ownership.
    """

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def compare_and_set(self, name: str, expected: int, new: int) -> bool:
        """Set `new` if the version is `expected`; return whether it was."""
        if self._versions.get(name) != expected:
            return False
        self._versions[name] = new
        return True

    def reset(self, name: str, version: int) -> None:
        """Set the stored version: on opening, and after a failed write."""
        self._versions[name] = version

    def forget(self, name: str) -> None:
        """Forget a managed ledger without a handle."""
        self._versions.pop(name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreServices:
    """The parts of a store that its handles use."""

    engine: StorageEngine
    committer: Committer
    cache: EntryCache
    cold_reads: ColdReads
    ids: IdCounter
    versions: MetadataVersions
    pool: BlockingRunner
    clock: Clock
    timers: Timers
    supervisor: Supervisor
    config: StoreConfig = field(default_factory=StoreConfig)
    metrics: Metrics = field(default_factory=Metrics)
    health: StorageHealth
    revision_counts: RevisionCounts = field(default_factory=RevisionCounts)
    read_counts: ReadCountTable
    tier: TierServices

    def forget_managed_ledger(self, name: str) -> None:
        """Drop everything in memory of a deleted managed ledger."""
        self.versions.forget(name)
        self.revision_counts.forget_all(name)
        self.read_counts.forget(name)

    def forget_ledger(self, ledger_id: int) -> None:
        """Drop everything in memory of a dropped ledger."""
        self.cache.drop(ledger_id)
        self.cold_reads.drop(ledger_id)

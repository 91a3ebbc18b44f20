"""OwnedCluster: the engine of an owner, with the stream of commits and the objects that it uses.

Rule: the constructor returns at once; `open` runs in a thread for as long as the takeover takes.
`stop` ends that, and every wait for a database that is unavailable.
Must not know: standbys, servers.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from uuid import UUID

from kledger.ledger.cluster.cluster_engine import ClusterEngine
from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.database import ClusterDatabase, ClusterDescription
from kledger.ledger.cluster.standby import OwnedSession
from kledger.ledger.cluster.wal_objects import StoredWalObjects
from kledger.ledger.engine.errors import StorageError
from kledger.ledger.errors import from_engine
from kledger.ledger.offload.object_store import ObjectStore
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import boot_ms
from kledger.runtime.loop_thread import LoopThread


class OwnedCluster:
    """What a broker has while it owns a cluster."""

    def __init__(
        self,
        database: ClusterDatabase,
        cluster: ClusterDescription,
        owned: OwnedSession,
        *,
        options: Mapping[str, object],
        on_failed: Callable[[str], None],
    ) -> None:
        """Prepare; nothing is loaded yet.

        Args:
            database: of the cluster.
            cluster: as it was described.
            owned: the session of this broker.
            options: of the object store.
            on_failed: called once, in some thread, when the engine has ended; it must not block.
        """
        self.stream = CommitStream(
            database,
            owned.session,
            owned.acquired,
            acquired_at_ms=owned.acquired_at_ms,
            now_ms=boot_ms,
        )
        self._database = database
        self._cluster = cluster
        self._options = options
        self._on_failed = on_failed
        self._engine: ClusterEngine | None = None
        self._closing = ExitStack()

    @property
    def engine(self) -> ClusterEngine:
        """The engine, once `open` has returned."""
        assert self._engine is not None, "the cluster is not open"
        return self._engine

    def open(self) -> None:
        """Load what earlier owners have committed; blocks.

        Raises:
            LedgerError: it cannot be loaded, or another broker owns the cluster by now.
        """
        with ExitStack() as closing:
            pool = BlockingPool()
            closing.callback(pool.close)
            loop = LoopThread("cluster-objects")
            loop.start()
            closing.callback(loop.stop)
            objects = StoredWalObjects(
                ObjectStore(self._cluster.store, self._options, pool=pool), loop
            )
            try:
                self._engine = ClusterEngine(
                    self._database,
                    self.stream,
                    objects,
                    incarnation=UUID(self._cluster.incarnation),
                    now_ms=boot_ms,
                    on_failed=self._on_failed,
                )
            except StorageError as error:
                raise from_engine(error) from error
            closing.callback(self._engine.close)
            self._engine.start_upkeep()
            self._closing = closing.pop_all()

    def stop(self) -> None:
        """End an opening that waits for the database; for any thread."""
        if self._engine is None:
            self.stream.stop()

    def close(self) -> None:
        """Close the engine and what it uses; blocks. May be repeated."""
        self._closing.close()

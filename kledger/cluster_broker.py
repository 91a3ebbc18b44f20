"""ClusterBroker: a broker without a disk, from its start to its end.

Rule: it waits as a standby, with its admin listener alone, until it owns the cluster; then it is a
server over the cluster's engine. An owner that was fenced becomes a standby again, with a new
session; whatever else ends the server ends the broker. A broker that ends closes its session, so
that a standby takes over at once.
Must not know: command lines, signals.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

from kledger.cluster_owner import ClusterOwner, ServerCrashed
from kledger.ledger.cluster import (
    ClusterDescription,
    DatabaseError,
    DatabaseUnusable,
    OwnedSession,
    PostgresDatabase,
    SessionBroker,
    SessionFenced,
    Standby,
    check_cluster,
)
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock, SystemClock, boot_ms
from kledger.runtime.concurrent_work import run_both
from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.wiring import BrokerServer, CannotStart

if TYPE_CHECKING:
    from kledger.admin.listener import AdminListener

logger = logging.getLogger(__name__)

EXIT_FAILURE: Final = 1
TIER: Final = "tier"
"""Below the URL of the cluster's object store: the copies of closed ledgers."""
OFFLOAD_AT_ONCE: Final = {
    "kledger.offload.threshold.bytes": "0",
    "kledger.offload.deletion.lag.ms": "0",
}
"""Settings of topics, unless others are given: a closed ledger is better kept in the tier's format,
and the objects of the write-ahead log get free."""


class ClusterBroker:
    """One broker; `run` it once."""

    def __init__(
        self,
        settings: Settings,
        *,
        announce: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            settings: with the URLs of the cluster.
            announce: called with the line of a standby, and with the ready line of an owner.
            clock: in place of the machine's.
        """
        url, store = settings.cluster.url, settings.cluster.store
        assert url is not None, "no URL of a database"
        assert store is not None, "no URL of an object store"
        self._settings = settings
        self._store_url = store
        self._announce = announce
        self._clock = clock or SystemClock()
        self._database = PostgresDatabase(url)
        self._pool = BlockingPool(1)

    async def run(self, ending: "asyncio.Future[int]") -> int:
        """Serve until somebody sets the exit code, or nothing can go on; return the exit code.

        Raises:
            CannotStart: the database, the store or a setting is not usable.
            LedgerError: the server did not close everything.
        """
        try:
            await BrokerServer(self._settings, on_crash=_raise).check()
            await run_both(self._live(), _end(ending))
        except _Ended as ended:
            return ended.code
        finally:
            await self._pool.run(self._database.close)
            self._pool.close()
        raise AssertionError("both end with an error")

    async def _live(self) -> None:
        """Be a standby and an owner in turns."""
        while True:
            cluster = await self._describe()
            standby = Standby(
                self._database,
                _broker_of(self._settings),
                clock=self._clock,
                boot_ms=boot_ms,
                pool=self._pool,
            )
            try:
                await self._own(cluster, await self._wait(standby))
            finally:
                await standby.end()

    async def _describe(self) -> ClusterDescription:
        try:
            cluster = await self._pool.run(self._database.describe)
            check_cluster(
                cluster,
                store=self._store_url,
                accepts_loss=self._settings.cluster.sql_asynchronous,
            )
        except DatabaseError as error:
            raise CannotStart(
                f"cluster.url: {error}", is_mistake=isinstance(error, DatabaseUnusable)
            ) from error
        return cluster

    async def _wait(self, standby: Standby) -> OwnedSession:
        """Wait until the session owns the cluster."""
        listener = await self._listen()
        try:
            return await standby.become_owner()
        except SessionFenced as error:
            node_id = self._settings.kafka.node_id
            raise CannotStart(
                f"node.id: another process has begun a session as broker {node_id}: {error}",
                is_mistake=True,
            ) from error
        except DatabaseUnusable as error:
            raise CannotStart(f"cluster.url: {error}", is_mistake=True) from error
        finally:
            if listener is not None:
                await listener.stop()

    async def _listen(self) -> "AdminListener | None":
        """Serve the pages of a standby."""
        admin, address = self._settings.server.admin, "-"
        listener: AdminListener | None = None
        if admin is not None:
            # HTTP takes longer to load than all the rest.
            from kledger.admin.standby_pages import standby_listener

            listener = standby_listener()
            address = joined_address(*await listener.start(*split_address("server.admin", admin)))
        self._announce(f"kledger standby admin={address}")
        return listener

    async def _own(self, cluster: ClusterDescription, owned: OwnedSession) -> None:
        """Serve as the owner, until the session is fenced."""
        owner = ClusterOwner(
            _owner_settings(self._settings, cluster),
            self._database,
            cluster,
            pool=self._pool,
            clock=self._clock,
        )
        try:
            await owner.serve(owned, on_ready=lambda server: self._announce(server.ready_line()))
        except ServerCrashed as error:
            logger.exception("stopping: the server has crashed")
            raise _Ended(EXIT_FAILURE) from error


class _Ended(Exception):
    """Somebody has ended the broker."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


async def _end(ending: "asyncio.Future[int]") -> NoReturn:
    raise _Ended(await ending)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _broker_of(settings: Settings) -> SessionBroker:
    """Return what others see of this process."""
    server, kafka = settings.server, settings.kafka
    shown = kafka.advertised_addresses or kafka.listener_addresses or server.kafka or ""
    if not kafka.advertised_addresses and kafka.advertised_host:
        shown = joined_address(kafka.advertised_host, kafka.advertised_port)
    return SessionBroker(kafka.node_id, shown, server.native or "", server.admin or "")


def _owner_settings(settings: Settings, cluster: ClusterDescription) -> Settings:
    """Return the settings of the server of an owner: its data is in the cluster alone."""
    url = settings.offload.url or f"{cluster.store.rstrip('/')}/{TIER}"
    return replace(
        settings,
        topics=replace(settings.topics, configs={**OFFLOAD_AT_ONCE, **settings.topics.configs}),
        server=replace(settings.server, memory=True),
        offload=replace(settings.offload, url=url),
        kafka=replace(settings.kafka, cluster_id=cluster.cluster_id),
    )

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

from kledger.ledger import Fenced, LedgerError
from kledger.ledger.cluster import (
    ClusterDescription,
    DatabaseError,
    DatabaseUnusable,
    OwnedCluster,
    OwnedSession,
    PostgresDatabase,
    SessionBroker,
    SessionFenced,
    Standby,
    check_cluster,
    show_cluster,
)
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock, SystemClock, boot_ms
from kledger.runtime.concurrent_work import run_both
from kledger.runtime.tasks import Supervisor
from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.wiring import BrokerServer, CannotStart

if TYPE_CHECKING:
    from kledger.admin.listener import AdminListener

logger = logging.getLogger(__name__)

EXIT_FAILURE: Final = 1
CURRENT_EVERY_MS: Final = 250
"""How often a broker that ends looks whether its commits are still answered."""
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
        loop = asyncio.get_running_loop()
        crash: asyncio.Future[BaseException] = loop.create_future()

        def crashed(error: BaseException) -> None:
            if not crash.done():
                crash.set_result(error)

        def failed(reason: str) -> None:
            # The store would notice at its next commit, which may not come for long.
            loop.call_soon_threadsafe(crashed, Fenced(reason))

        mine = OwnedCluster(
            self._database,
            cluster,
            owned,
            options=self._settings.offload.options,
            on_failed=failed,
        )
        try:
            await self._serve(cluster, mine, owned.acquired.epoch, crashed, crash)
        except LedgerError as error:
            if not isinstance(mine.stream.ended, SessionFenced):
                reason = mine.stream.ended or error
                raise CannotStart(f"the cluster: {reason}", is_mistake=False) from error
            logger.warning("stopped after the session was closed: %s", error)
        finally:
            mine.stop()
            await self._pool.run(mine.close)

    async def _serve(
        self,
        cluster: ClusterDescription,
        mine: OwnedCluster,
        epoch: int,
        crashed: Callable[[BaseException], None],
        crash: "asyncio.Future[BaseException]",
    ) -> NoReturn:
        """Serve until the server crashes.

        Raises:
            LedgerError: the store cannot go on.
            _Ended: the server cannot.
        """
        await self._pool.run(mine.open)
        server = BrokerServer(
            _owner_settings(self._settings, cluster),
            on_crash=crashed,
            clock=self._clock,
            engine=mine.engine,
            leader_epoch=epoch,
            is_current=mine.engine.is_current,
        )
        try:
            await server.start()
            show_cluster(server.metrics, mine.stream, mine.engine)
            self._announce(server.ready_line())
            error = await crash
            if isinstance(error, LedgerError):
                raise error
            logger.error("stopping: crash: %r", error)
            raise _Ended(EXIT_FAILURE)
        finally:
            await self._stop(server, mine)

    async def _stop(self, server: BrokerServer, mine: OwnedCluster) -> None:
        """Stop a server in order, without waiting for a database that is away."""
        watching = Supervisor()
        watching.spawn(self._give_up(mine), "the end of commits under way")
        try:
            await server.stop()
        finally:
            await watching.close()

    async def _give_up(self, mine: OwnedCluster) -> None:
        while mine.engine.is_current():
            await self._clock.sleep(CURRENT_EVERY_MS)
        mine.stream.stop()


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

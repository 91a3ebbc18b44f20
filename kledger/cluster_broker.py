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
from typing import TYPE_CHECKING, Final, NoReturn

from kledger.cluster_owner import ClusterOwner, ServerCrashed
from kledger.cluster_settings import describe_usable, owner_settings, session_broker_of
from kledger.ledger.cluster import (
    ClusterDescription,
    DatabaseUnusable,
    OwnedSession,
    PostgresDatabase,
    SessionFenced,
    Standby,
)
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.clock import Clock, SystemClock, boot_ms
from kledger.runtime.concurrent_work import run_until
from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.wiring import BrokerServer, CannotStart

if TYPE_CHECKING:
    from kledger.admin.listener import AdminListener

logger = logging.getLogger(__name__)

EXIT_FAILURE: Final = 1


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
        url = settings.cluster.url
        assert url is not None, "no URL of a database"
        self._settings = settings
        self._announce = announce
        self._clock = clock or SystemClock()
        self._database = PostgresDatabase(url)
        self._pool = BlockingPool(1)

    async def run(self, ending: "asyncio.Future[int]") -> int:
        """Serve until an exit code is set, or an error ends the broker; return the exit code.

        Raises:
            CannotStart: the database, the store or a setting is not usable.
            LedgerError: the server did not close everything.
        """
        try:
            await BrokerServer(self._settings, on_crash=_raise).check()
            return await run_until(self._live(), ending)
        except ServerCrashed:
            logger.exception("stopping: the server has crashed")
            return EXIT_FAILURE
        finally:
            await self._pool.run(self._database.close)
            self._pool.close()

    async def _live(self) -> NoReturn:
        """Alternate between standby and owner."""
        while True:
            cluster = await describe_usable(self._settings, self._database, self._pool)
            standby = Standby(
                self._database,
                session_broker_of(self._settings),
                clock=self._clock,
                boot_ms=boot_ms,
                pool=self._pool,
            )
            try:
                await self._own(cluster, await self._wait(standby))
            finally:
                await standby.end()

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
            owner_settings(self._settings, cluster),
            self._database,
            cluster,
            pool=self._pool,
            clock=self._clock,
        )
        await owner.serve(owned, on_ready=lambda server: self._announce(server.ready_line()))


def _raise(error: BaseException) -> NoReturn:
    raise error

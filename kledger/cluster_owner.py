"""ClusterOwner: serves the data of a cluster for as long as this process owns it.

Rule: it opens what earlier owners have committed, and runs a server over it. It returns when its
session was closed, so that the process can become a standby; whatever else ends the server is an
error. A stop never waits for a database that is unavailable.
Must not know: standbys, command lines, signals.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from kledger.ledger import Fenced, LedgerError
from kledger.ledger.cluster import (
    ClusterDatabase,
    ClusterDescription,
    OwnedCluster,
    OwnedSession,
    SessionFenced,
    show_cluster,
)
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.tasks import Supervisor
from kledger.settings import Settings
from kledger.wiring import BrokerServer, CannotStart

if TYPE_CHECKING:
    from kledger.cluster import ClusterMember

logger = logging.getLogger(__name__)

CURRENT_EVERY_MS: Final = 250
"""How often a server that ends looks whether its commits are still answered."""


class ServerCrashed(Exception):
    """The server in this process cannot go on."""


class ClusterOwner:
    """What one session owns; `serve` it once."""

    def __init__(
        self,
        settings: Settings,
        database: ClusterDatabase,
        cluster: ClusterDescription,
        *,
        pool: BlockingRunner,
        clock: Clock,
        member: "ClusterMember | None" = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            settings: of the server.
            database: of the cluster.
            cluster: as it was described.
            pool: for what blocks.
            clock: of the server.
            member: makes the server a broker of a cluster of several; None: it is alone.
        """
        self._settings = settings
        self._database = database
        self._cluster = cluster
        self._pool = pool
        self._clock = clock
        self._member = member

    async def serve(self, owned: OwnedSession, *, on_ready: Callable[[BrokerServer], None]) -> None:
        """Serve until the session is fenced.

        Args:
            owned: the session.
            on_ready: called when the server accepts connections.

        Raises:
            CannotStart: the data or the addresses are not usable.
            ServerCrashed: the server has ended.
        """
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
            self._cluster,
            owned,
            options=self._settings.offload.options,
            on_failed=failed,
        )
        try:
            await self._pool.run(mine.open)
            server = BrokerServer(
                self._settings,
                on_crash=crashed,
                clock=self._clock,
                engine=mine.engine,
                member=self._member,
                leader_epoch=owned.acquired.epoch,
                is_current=mine.engine.is_current,
            )
            try:
                await server.start()
                show_cluster(server.metrics, mine.stream, mine.engine)
                on_ready(server)
                _raise_crash(await crash)
            finally:
                await self._stop(server, mine)
        except LedgerError as error:
            if not isinstance(mine.stream.ended, SessionFenced):
                reason = mine.stream.ended or error
                raise CannotStart(f"the cluster: {reason}", is_mistake=False) from error
            logger.warning("stopped after the session was closed: %s", error)
        finally:
            mine.stop()
            await self._pool.run(mine.close)

    async def _stop(self, server: BrokerServer, mine: OwnedCluster) -> None:
        """Stop a server in order, without waiting for a database that is unavailable."""
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


def _raise_crash(error: BaseException) -> NoReturn:
    """Raise what has ended a server: an error of its store, or `ServerCrashed`."""
    if isinstance(error, LedgerError):
        raise error
    raise ServerCrashed(repr(error)) from error

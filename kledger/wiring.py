"""Wiring: builds the parts of a server in order, and closes them in the opposite order.

Rule: the only module that knows every class. Nothing is written before the addresses are known to
be free; when a step fails, the parts that were built are closed again.
Must not know: command lines, signals, processes.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kledger.gateway.listeners.listener_plan import ListenerMistake, ListenerPlan, is_loopback
from kledger.gateway.listeners.listener_settings import is_security_configured, plans_of
from kledger.gateway.net.logins import Logins
from kledger.gateway.net.server import ConnectionMaker, GatewayServer
from kledger.gateway.opening import open_services
from kledger.gateway.service_metrics import show_services
from kledger.gateway.services import Services, load_cluster_id
from kledger.ledger import (
    Corrupt,
    InvalidArgument,
    LedgerError,
    LedgerStore,
    ObjectStoreTiers,
    StorageEngine,
    StoreInUse,
    StoreUnusable,
    TableStore,
)
from kledger.native.open_strategy import open_strategy
from kledger.runtime.clock import Clock, SystemClock
from kledger.runtime.containment import NamedUnit
from kledger.runtime.entropy import Entropy, SystemEntropy
from kledger.runtime.free_memory import FreeMemory, release_object_memory
from kledger.runtime.metrics import Metrics
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.setting_values import joined_address, split_address
from kledger.settings import Settings
from kledger.topics.cleaner import Cleaner
from kledger.topics.errors import TopicsError
from kledger.topics.offloading import Offloading
from kledger.topics.partition.partition_tier import Tier
from kledger.topics.registry import TopicRegistry
from kledger.topics.tier_url import remember_url

if TYPE_CHECKING:
    from kledger.admin.server import AdminServer
    from kledger.cluster import BrokerCluster, ClusterMember
    from kledger.gateway.listeners.endpoint import Endpoint
    from kledger.listener_logins import ListenerLogins, ListenerSecurity
    from kledger.native.rpc.server import RpcServer
    from kledger.native.server.service import NativeService

logger = logging.getLogger(__name__)

STOP_GRACE_MS = 5_000
TIER_CACHE_FOLDER = ".tier-cache"
"""In the data folder: blocks of the tier, which may be deleted while the server is stopped."""
_RETENTION = NamedUnit("background work", "retention, until its next time")
_OFFLOADING = NamedUnit("background work", "offloading, until its next time")
_IDLE = NamedUnit("background work", "closing idle partitions, until its next time")
_TOKENS = NamedUnit("background work", "removing expired tokens, until its next time")
IDLE_ROUNDS = 4
"""How often in the idle time of partitions the server closes idle ones."""
MANY_CLOSED = 500
"""After closing this many partitions, and as many as are open, the process returns their memory."""


class CannotStart(Exception):
    """A server that did not start; the message is one line for the user.

    Attributes:
        is_mistake: the caller can start differently; otherwise something is broken.
    """

    def __init__(self, message: str, *, is_mistake: bool) -> None:
        super().__init__(message)
        self.is_mistake = is_mistake


class BrokerServer:
    """A whole server: start() it once, stop() it once."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_crash: Callable[[BaseException], None],
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        engine: StorageEngine | None = None,
        make_connection: ConnectionMaker | None = None,
        member: "ClusterMember | None" = None,
        leader_epoch: int = 0,
        is_current: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            settings: all of them.
            on_crash: called with the error when the server cannot continue; the owner then calls
                stop().
            clock: in place of the machine's.
            entropy: makes ids, in place of the machine's.
            engine: the storage, in place of the usual one; it is not closed with the server.
            make_connection: serves Kafka clients in place of `Connection`.
            member: makes it a broker of a cluster, whose ports are reserved; None: it is alone.
            leader_epoch: under which it leads its partitions; a server that takes over a store has
                a higher one than those before.
            is_current: whether no other server can have taken over the store; None: none ever does.
        """
        self._settings = settings
        self._member = member
        self._leader_epoch = leader_epoch
        self._is_current = is_current
        self._on_crash = on_crash
        self._clock = clock or SystemClock()
        self._entropy = entropy or SystemEntropy()
        self._engine = engine
        self._make_connection = make_connection
        self._supervisor = Supervisor(on_crash)
        self._store: LedgerStore | None = None
        self._cluster: BrokerCluster | None = None
        self._services: Services | None = None
        self._gateway: GatewayServer | None = None
        self._native: NativeService | None = None
        self._rpc: RpcServer | None = None
        self._admin: AdminServer | None = None
        self._cleaner: Cleaner | None = None
        self._tiers: ObjectStoreTiers | None = None
        self._offloading: Offloading | None = None
        self._logins: Logins | None = None
        """Those of a server without a Kafka listener."""
        self.kafka_address = ""
        self.native_address = ""
        self.admin_address = ""

    async def check(self) -> None:
        """Find mistakes that would end the start, and open nothing.

        Raises:
            CannotStart: there is one.
        """
        try:
            plans = plans_of(self._settings.kafka)
            await self._check_addresses(plans)
            self._read_security(plans)
        except (ListenerMistake, OSError) as error:
            raise _start_error(error, None) from error

    async def start(self) -> None:
        """Build everything and accept connections.

        Raises:
            CannotStart: everything is closed again.
        """
        settings = self._settings.server
        try:
            plans = plans_of(self._settings.kafka)
            await self._check_addresses(plans)
            security = self._read_security(plans)
            if settings.native is not None:
                # Before gRPC is loaded, which would log each failed handshake, however many.
                os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
            self._tiers = self._make_tiers()
            self._store = await self._open_store()
            self._supervisor.containment = self._store.containment
            self._cluster = await self._open_cluster(self._store)
            self._services = await self._build_services(self._store)
            show_services(self._services)
            self._show_fixed_values(self._services)
            if security is not None:
                await security.open(self._services)
            endpoints = security.endpoints if security is not None else ()
            await self._listen_kafka(self._services, endpoints)
            if self._cluster is not None and self._gateway is not None:
                await self._gateway.start_peers(self._cluster.transport)
            if settings.native is not None and security is not None:
                self.native_address = await self._listen_native(
                    self._services, settings.native, security.logins
                )
            if settings.admin is not None and security is not None:
                self.admin_address = await self._listen_admin(
                    self._services, settings.admin, security.logins
                )
            if self._cluster is not None:
                await self._cluster.register(
                    self._services.config,
                    endpoints,
                    self.native_address,
                    leader_epoch=self._services.registry.leader_epoch,
                )
            self._start_background_work(self._services)
        except BaseException as error:
            await self.stop()
            raise _start_error(error, None if settings.memory else settings.data) from error
        if self.kafka_address:
            logger.info("serving Kafka clients on %s", self.kafka_address)
        if self.native_address:
            logger.info("serving native clients on %s", self.native_address)
        if self.admin_address:
            logger.info("serving administrators on %s", self.admin_address)

    def _start_background_work(self, services: Services) -> None:
        spawn, settings = self._supervisor.spawn, self._settings
        spawn(self._enforce_retention(services), "retention")
        if services.cluster_offsets is not None:
            publishing = services.cluster_offsets.publish_at_intervals(self._clock)
            spawn(publishing, "lowest committed offsets")
        if settings.offload.url is not None:
            spawn(self._offload_due(services), "offloading")
        if services.config.log_cleaner_enable:
            spawn(self._cleaner_of(services).run(), "log cleaner")
        if services.delegation_tokens.is_enabled:
            spawn(self._remove_expired_tokens(services), "delegation tokens")
        if settings.server.log_partitions_max_idle_ms > 0:
            spawn(self._close_idle_partitions(services), "idle partitions")

    def ready_line(self) -> str:
        """Return the line with the addresses, which programs wait for."""
        kafka, native = self.kafka_address or "-", self.native_address or "-"
        return f"kledger ready kafka={kafka} native={native} admin={self.admin_address or '-'}"

    @property
    def metrics(self) -> Metrics:
        """The metrics of a started server."""
        assert self._store is not None, "the server is not running"
        return self._store.metrics

    @property
    def broker(self) -> "NativeService":
        """The service for native clients of a started server; built at the first use."""
        services = self._services
        assert services is not None, "the server is not running"
        if self._native is None:
            # A server without native clients does not load this package.
            from kledger.kafka_clients import GatewayClients
            from kledger.named_topics.group_functions import FunctionSettings
            from kledger.native.server.service import NativeService

            self._native = NativeService(
                store=services.store,
                registry=services.registry,
                clock=services.clock,
                timers=services.timers,
                supervisor=services.supervisor,
                cleaner=self._cleaner_of(services),
                offloading=self._offloading_of(services),
                auto_create_topics=services.config.auto_create_topics_enable,
                forget_topic=services.groups.offsets.forget_topic,
                kafka_clients=GatewayClients(services.telemetry),
                function_modules=self._settings.native.function_modules,
                function_settings=FunctionSettings(
                    self._settings.native.function_timeout_ms,
                    self._settings.native.function_processes_max,
                ),
                cluster=self._cluster,
            )
        return self._native

    async def stop(self) -> None:
        """Stop accepting, answer or fail open requests, flush, close. May be repeated.

        Raises:
            LedgerError: a flush failed; everything is closed nevertheless.
        """
        gateway, rpc, native, admin = self._gateway, self._rpc, self._native, self._admin
        services, store = self._services, self._store
        self._gateway = self._rpc = self._native = self._services = self._store = None
        self._admin = self._cleaner = self._offloading = None
        logins, self._logins = self._logins, None
        tiers, self._tiers = self._tiers, None
        cluster, self._cluster = self._cluster, None
        # The stack closes from the last line to the first, also when one of them fails.
        async with AsyncExitStack() as closing:
            if tiers is not None:
                closing.push_async_callback(tiers.close)
            if store is not None:
                closing.push_async_callback(store.close)
            closing.push_async_callback(self._supervisor.close)
            if cluster is not None:
                closing.push_async_callback(cluster.close)
            if admin is not None:
                closing.push_async_callback(admin.stop)
            if logins is not None:
                closing.callback(logins.close)
            if services is not None:
                closing.push_async_callback(services.registry.close)
            if native is not None:
                closing.push_async_callback(native.close)
            if rpc is not None:
                closing.push_async_callback(rpc.stop, grace_ms=STOP_GRACE_MS)
            if gateway is not None:
                closing.push_async_callback(gateway.stop, grace_ms=STOP_GRACE_MS)
            if services is not None:
                closing.callback(services.close)

    def _make_tiers(self) -> ObjectStoreTiers:
        """Return what makes tiers; it loads and starts nothing before one is needed."""
        server, offload = self._settings.server, self._settings.offload
        tiers = ObjectStoreTiers(
            offload.options,
            cache_folder=None if server.memory else Path(server.data) / TIER_CACHE_FOLDER,
            cache_bytes=offload.cache_bytes,
        )
        if offload.url is not None:
            with _mistakes("offload.url"):
                tiers.check(offload.url)
        return tiers

    async def _open_store(self) -> LedgerStore:
        settings = self._settings
        path = None if settings.server.memory else settings.server.data
        store = await LedgerStore.open(
            path,
            config=settings.storage,
            clock=self._clock,
            engine=self._engine,
            offloaders=self._tiers,
        )
        store.on_fatal = self._on_crash
        return store

    async def _open_cluster(self, store: LedgerStore) -> "BrokerCluster | None":
        """Open what this broker shares with others; None: the server is alone."""
        if self._member is None:
            return None
        cluster = await self._member.open(
            self._settings.kafka,
            containment=store.containment,
            clock=self._clock,
            supervisor=self._supervisor,
        )
        cluster.tables.on_fatal = self._on_crash
        return cluster

    async def _build_services(self, store: LedgerStore) -> Services:
        """Build the services of the handlers, from the store upwards."""
        timers = Timers(self._clock, self._supervisor)
        # A copy: the listener fills in its port, which must not reach other servers.
        config = replace(self._settings.kafka)
        cluster = None if self._cluster is None else self._cluster.cluster
        tables: TableStore = store if cluster is None else cluster.tables
        config.cluster_id = config.cluster_id or await load_cluster_id(tables, self._entropy)
        registry = await TopicRegistry.open(
            store,
            self._settings.topics,
            self._clock,
            self._entropy,
            await self._open_tier(store),
            cluster=None if cluster is None else cluster.topics,
            leader_epoch=self._leader_epoch,
        )
        services = open_services(
            store,
            registry,
            cluster=cluster,
            config=config,
            clock=self._clock,
            timers=timers,
            supervisor=self._supervisor,
            entropy=self._entropy,
            metrics=store.metrics,
        )
        services.is_current = self._is_current
        return services

    async def _open_tier(self, store: LedgerStore) -> Tier | None:
        """Return the tier of the settings, if they name one; the store remembers its URL."""
        url = self._settings.offload.url
        if url is None or self._tiers is None:
            return None
        with _mistakes("offload.url"):
            tier = self._tiers.from_url(url)
        await remember_url(store, url)
        return tier

    def _show_fixed_values(self, services: Services) -> None:
        """Let DescribeConfigs show what was given to others than the gateway."""
        interval_ms = str(self._settings.server.log_retention_check_interval_ms)
        shown = services.broker_settings.fixed_values
        shown["log.retention.check.interval.ms"] = interval_ms
        if self._settings.offload.url is not None:
            shown["remote.log.manager.task.interval.ms"] = interval_ms
            shown["remote.log.storage.system.enable"] = "true"

    def _offloading_of(self, services: Services) -> Offloading:
        """Return what offloads the topics of a server; made at the first use."""
        if self._offloading is None:
            self._offloading = Offloading(
                services.registry, services.store, self._clock, self._supervisor
            )
        return self._offloading

    async def _offload_due(self, services: Services) -> None:
        """Offload what the settings of topics demand, at every interval of retention.

        It is a separate task, so that a slow tier does not delay retention.
        """
        while True:
            await self._clock.sleep(self._settings.server.log_retention_check_interval_ms)
            with self._supervisor.containment.guarding(_OFFLOADING):
                await self._offloading_of(services).run_due()

    def _cleaner_of(self, services: Services) -> Cleaner:
        """Return what compacts the topics of a server; made at the first use."""
        if self._cleaner is None:
            self._cleaner = Cleaner(
                services.registry,
                services.store,
                self._clock,
                self._supervisor,
                services.config,
                open_strategy=open_strategy,
            )
        return self._cleaner

    async def _enforce_retention(self, services: Services) -> None:
        """Delete records that exceed their topic's retention, at every interval."""
        while True:
            await self._clock.sleep(self._settings.server.log_retention_check_interval_ms)
            with self._supervisor.containment.guarding(_RETENTION):
                await services.registry.enforce_retention(services.lowest_committed)

    async def _remove_expired_tokens(self, services: Services) -> None:
        """Remove delegation tokens that have expired; until then they open nothing, either."""
        while True:
            await self._clock.sleep(services.config.delegation_token_expiry_check_interval_ms)
            with self._supervisor.containment.guarding(_TOKENS):
                while await services.delegation_tokens.remove_expired():
                    pass

    async def _close_idle_partitions(self, services: Services) -> None:
        """Close partitions without a request for `log_partitions_max_idle_ms`, or a bit longer."""
        round_ms = max(self._settings.server.log_partitions_max_idle_ms // IDLE_ROUNDS, 1)
        registry, store = services.registry, services.store
        memory = FreeMemory(self._clock, self._supervisor, give_back=release_object_memory)
        closed = 0
        try:
            while True:
                await self._clock.sleep(round_ms)
                with self._supervisor.containment.guarding(_IDLE):
                    closed_now = await registry.close_idle_partitions(IDLE_ROUNDS)
                    closed += closed_now
                    has_calmed_down = closed_now < MANY_CLOSED  # others would follow at once
                    if has_calmed_down and closed >= max(
                        MANY_CLOSED, registry.open_partition_count
                    ):
                        closed = 0
                        await store.checkpoint()  # the last rows of the partitions wait in memory
                        memory.give_back_soon()
        finally:
            memory.close()

    async def _check_addresses(self, plans: Sequence[ListenerPlan]) -> None:
        """Refuse to start if an address is in use, before anything is touched."""
        settings = self._settings.server
        if self._member is not None:
            return  # they are reserved
        if settings.workers is not None:
            raise CannotStart(
                "server.workers: expected none, as this server is part of another program",
                is_mistake=True,
            )
        for plan in plans:
            await _check_address_free(plan.name, joined_address(plan.host, plan.port))
        for name in ("native", "admin") if plans else ("kafka", "native", "admin"):
            if (address := getattr(settings, name)) is not None:
                await _check_address_free(name, address)

    def _read_security(self, plans: Sequence[ListenerPlan]) -> "ListenerSecurity | None":
        """Read the settings of TLS and logins; None: no client of this server logs in."""
        server, config = self._settings.server, self._settings.kafka
        has_logins = bool(plans) or server.native is not None or server.admin is not None
        if not has_logins and not is_security_configured(config):
            return None
        # A server without logins does not load what they need.
        from kledger.listener_logins import ListenerSecurity

        has_tls = self._settings.native.tls and server.native is not None
        return ListenerSecurity(config, plans, self._entropy, has_tls=has_tls)

    async def _listen_kafka(self, services: Services, endpoints: "Sequence[Endpoint]") -> None:
        """Listen on the endpoints; without any, on `server.kafka`."""
        address = self._settings.server.kafka
        if not endpoints and address is None:
            return
        self._gateway = GatewayServer(
            services,
            self._make_connection,
            bootstrap=None if self._member is None else self._member.bootstrap,
        )
        if endpoints:
            bound = await self._gateway.start_endpoints(endpoints)
            self.kafka_address = ",".join(joined_address(*each) for each in bound)
            open_hosts = [each.plan.host for each in endpoints if not each.authenticates]
        else:
            assert address is not None, "neither endpoints nor an address"
            host, port = split_address("server.kafka", address)
            self.kafka_address = joined_address(*await self._gateway.start(host, port))
            open_hosts = [host]
        _warn_of_open(open_hosts)

    def _logins_of(self, services: Services) -> Logins:
        """Return what the logins of all listeners share."""
        if self._gateway is not None:
            return self._gateway.logins
        if self._logins is None:
            self._logins = Logins(services)
        return self._logins

    def _warn_if_open(self, services: Services, setting: str, address: str) -> None:
        """Warn of a listener whose clients may do everything from elsewhere."""
        if services.authorizer is None:
            _warn_of_open([split_address(setting, address)[0]], f"{setting}: ")

    async def _listen_native(
        self, services: Services, address: str, listener_logins: "ListenerLogins"
    ) -> str:
        # gRPC takes longer to load than everything else together.
        from kledger.native.rpc.server import RpcServer
        from kledger.native.server.native_sessions import NativeSessions

        host, port = split_address("server.native", address)
        self._rpc = rpc = RpcServer(
            self.broker,
            supervisor=self._supervisor,
            # A topic may take larger batches than the others; this bounds them for Kafka, too.
            message_bytes_max=self._settings.kafka.socket_request_max_bytes,
            config=self._settings.native,
            sessions=NativeSessions(
                self.broker,
                logins=listener_logins.header_logins("native", services, self._logins_of(services)),
                name_of_certificate=listener_logins.name_of_certificate,
                authorizer=services.authorizer,
                quotas=services.quotas,
                audit=services.audit,
                clock=services.clock,
                timers=services.timers,
            ),
            tls=listener_logins.tls_credentials(),
            brokers=self.broker.broker_addresses,
        )
        services.metrics.gauge(
            "native_streams", lambda: rpc.stream_count, "open streams of native clients"
        )
        services.metrics.gauge(
            "native_delivery_bytes_waiting",
            lambda: rpc.delivery_bytes_waiting,
            "bytes of deliveries that native consumers have not received",
        )
        bootstrap = None
        if self._member is not None:
            bootstrap = self._member.bootstrap["native"]
        else:
            # Again, as the Kafka listener may have this address: gRPC's own error names none.
            await _check_address_free("native", address)
        self._warn_if_open(services, "server.native", address)
        try:
            return joined_address(*await rpc.start(host, port, bootstrap=bootstrap))
        except OSError as error:
            raise CannotStart(f"native {address}: {error}", is_mistake=True) from None

    async def _listen_admin(
        self, services: Services, address: str, listener_logins: "ListenerLogins"
    ) -> str:
        # HTTP takes longer to load than the server to start.
        from kledger.admin.access import AdminAccess
        from kledger.admin.server import AdminServer

        self._warn_if_open(services, "server.admin", address)
        self._admin = AdminServer(
            services.store.metrics,
            is_serving=lambda: self._services is not None,
            health=services.store.health,
            access=AdminAccess(
                listener_logins.header_logins("admin", services, self._logins_of(services)),
                services.authorizer,
                services.audit,
            ),
        )
        host, port = split_address("server.admin", address)
        is_reserved = self._member is not None
        return joined_address(*await self._admin.start(host, port, is_reserved=is_reserved))


@contextmanager
def _mistakes(setting: str) -> Iterator[None]:
    """Let what is wrong with a setting end the start in one line."""
    try:
        yield
    except InvalidArgument as error:
        raise CannotStart(f"{setting}: {error}", is_mistake=True) from None


async def _check_address_free(name: str, address: str) -> None:
    """Bind and close, so that a port in use is an error before the data folder is touched."""
    host, port = split_address(f"server.{name}", address)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, socket_address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(socket_address)
    except OSError as error:
        raise CannotStart(f"{name} {address}: {error.strerror or error}", is_mistake=True) from None


def _warn_of_open(hosts: Sequence[str], listener: str = "") -> None:
    """Warn of hosts other than loopback on which every client may do everything.

    Args:
        hosts: on which no client authenticates.
        listener: what the warning begins with.
    """
    reachable = [each for each in hosts if not is_loopback(each)]
    if reachable:
        logger.warning(
            "%slistening without authentication on %s: every client of this address may do "
            "everything; see docs/SECURITY.md",
            listener,
            ", ".join(reachable),
        )


def _start_error(error: BaseException, data: str | None) -> BaseException:
    """Turn an error that a start can expect into one line; any other is a fault of ours.

    Args:
        error: what ended the start.
        data: the folder, for the advice to run the doctor; None for a server in memory.
    """
    match error:
        case CannotStart():
            return error
        case ListenerMistake():
            return CannotStart(str(error), is_mistake=True)
        case StoreInUse() | StoreUnusable():
            return CannotStart(str(error), is_mistake=True)
        case Corrupt() if data is not None:
            return CannotStart(
                f"{error}; `kledger doctor --data {data}` lists the damage", is_mistake=False
            )
        case LedgerError() | TopicsError():
            return CannotStart(str(error), is_mistake=False)
        case OSError():
            where = f"{data}: " if data is not None else ""
            return CannotStart(f"{where}{error.strerror or error}", is_mistake=True)
        case _:
            return error

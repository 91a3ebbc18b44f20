"""NativeSessions: the logins of remote native clients, and the broker that each of them gets.

Rule: the user of a client is that of its header, else that of its certificate, else ANONYMOUS. With
an authorizer every call checks its rights; without one every client may do everything, as on the
Kafka listeners. When a login expires, its streams end. The bytes of a stream count against the
quotas of its user, with an empty client id.
Must not know: gRPC, how passwords and tokens are checked.
"""

import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kledger.native.broker import Broker, OnEnded
from kledger.native.errors import NotAllowed
from kledger.native.rpc.sessions import BrokerSession, CallOrigin
from kledger.native.server.authorized_broker import AuthorizedBroker
from kledger.native.server.byte_quota import ByteQuota
from kledger.native.server.client_rights import ClientRights
from kledger.runtime.clock import Clock
from kledger.runtime.timers import Timers
from kledger.security.audit import AuditLog
from kledger.security.authorizer import Authorizer
from kledger.security.principal import ANONYMOUS, Principal
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed

if TYPE_CHECKING:
    from kledger.runtime.timers import TimerHandle

NO_CLIENT_ID = ""
"""Native clients have no client id; quotas of users know them by this one."""

NameOfCertificate = Callable[[bytes], str | None]
"""Returns the name of a user by the client's certificate in DER; None: the certificate names
nobody. Raises ValueError likewise."""


class HeaderLogins(Protocol):
    """Checks the header of a call."""

    async def login(self, header: str, address: str) -> Authenticated:
        """Return the principal of a login. Raises AuthenticationFailed."""
        ...


class ByteRates(Protocol):
    """The quotas of users: each counts bytes, and returns how many milliseconds to wait."""

    def charge_produce(self, principal: Principal, client_id: str, size: int) -> int:
        """Count bytes that a client sent."""
        ...

    def charge_fetch(self, principal: Principal, client_id: str, size: int) -> int:
        """Count bytes that went to a client."""
        ...


class _Login(NamedTuple):
    principal: Principal
    expires_at_ms: int | None = None


class NativeSessions:
    """Opens the sessions of one listener."""

    def __init__(
        self,
        broker: Broker,
        *,
        logins: HeaderLogins,
        name_of_certificate: NameOfCertificate | None,
        authorizer: Authorizer | None,
        quotas: ByteRates,
        audit: AuditLog,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """Prepare.

        Args:
            broker: of all clients.
            logins: checks headers.
            name_of_certificate: None: certificates of clients do not count.
            authorizer: None: every client may do everything.
            quotas: of users.
            audit: of refusals.
            clock: for expiry.
            timers: likewise.
        """
        self._broker = broker
        self._logins = logins
        self._name_of_certificate = name_of_certificate
        self._authorizer = authorizer
        self._quotas = quotas
        self._audit = audit
        self._clock = clock
        self._timers = timers

    async def open(self, origin: CallOrigin) -> BrokerSession:
        """Return the session of a call. Raises NotAllowed."""
        login = await self._login(origin)
        broker, rights = self._broker, None
        if self._authorizer is not None:
            rights = ClientRights(self._authorizer, self._audit, login.principal, origin.host)
            broker = AuthorizedBroker(self._broker, rights)
        left_ms = None
        if login.expires_at_ms is not None:
            left_ms = max(login.expires_at_ms - self._clock.now_ms(), 0)
        produced, delivered = (
            ByteQuota(partial(charge, login.principal, NO_CLIENT_ID), self._timers)
            for charge in (self._quotas.charge_produce, self._quotas.charge_fetch)
        )
        return NativeSession(
            broker, rights, self._timers, left_ms, produced=produced, delivered=delivered
        )

    async def _login(self, origin: CallOrigin) -> _Login:
        if origin.authorization is not None:
            try:
                found = await self._logins.login(origin.authorization, origin.host)
            except AuthenticationFailed as error:
                raise NotAllowed(str(error)) from None
            return _Login(found.principal, found.expires_at_ms)
        if origin.certificate is None or self._name_of_certificate is None:
            return _Login(ANONYMOUS)
        try:
            certificate = ssl.PEM_cert_to_DER_cert(origin.certificate.decode("ascii"))
            name = self._name_of_certificate(certificate)
        except ValueError:
            name = None
        if name is None:
            raise NotAllowed("the client's certificate names no user")
        return _Login(Principal(name))


class NativeSession:
    """One call or stream of a client; `native.rpc.sessions.BrokerSession` documents it."""

    def __init__(
        self,
        broker: Broker,
        rights: ClientRights | None,
        timers: Timers,
        left_ms: int | None,
        *,
        produced: ByteQuota,
        delivered: ByteQuota,
    ) -> None:
        """Begin.

        Args:
            broker: as the client may use it.
            rights: of the client; None: every client may do everything.
            timers: for the end of the login.
            left_ms: how long the login is valid; None: for ever.
            produced: the quota of what the client sends.
            delivered: the quota of what it gets.
        """
        self.broker = broker
        self._produced = produced
        self._delivered = delivered
        self._rights = rights
        self._timers = timers
        self._left_ms = left_ms
        self._expiry: TimerHandle | None = None

    def end_at_expiry(self, end: OnEnded) -> None:
        """Call `end` when the login expires."""
        if self._left_ms is not None:
            error = NotAllowed("the login has expired; connect with a newer token")
            self._expiry = self._timers.call_after(self._left_ms, partial(end, error))

    def count_produced(self, size: int, resume: Callable[[], None]) -> bool:
        """Count bytes that the client sent."""
        return self._produced.count(size, resume)

    def count_delivered(self, size: int, resume: Callable[[], None]) -> bool:
        """Count bytes that go to the client."""
        return self._delivered.count(size, resume)

    def close(self) -> None:
        """Cancel what waits. May be repeated."""
        self._produced.close()
        self._delivered.close()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._rights is not None:
            self._rights.close()

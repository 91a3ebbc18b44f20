"""Whose call it is: the header before the certificate, and nobody by mistake."""

import pytest

from kledger.native.errors import NotAllowed
from kledger.native.rpc.sessions import CallOrigin
from kledger.native.server.authorized_broker import AuthorizedBroker
from kledger.native.server.native_sessions import NativeSessions
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.security.acl_state import (
    ANY_HOST,
    CLUSTER_NAME,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kledger.security.audit import AuditLog
from kledger.security.authorizer import Authorizer
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed
from tests.native.recorded_rates import RecordedRates
from tests.native.serving import serving, ticks
from tests.security.certificates import authority

CERTIFICATE = authority().issue("ann").certificate.encode()


class Headers:
    async def login(self, header: str, address: str) -> Authenticated:
        if header == "wrong":
            raise AuthenticationFailed("a wrong password")
        return Authenticated(principal=Principal(header))


def name_of(certificate: bytes) -> str | None:
    """The user of any certificate, if it is one."""
    if not certificate.startswith(b"0"):
        raise ValueError("no certificate")
    return "by-certificate"


@pytest.mark.parametrize(
    ("origin", "user"),
    [
        (CallOrigin("10.0.0.1"), "ANONYMOUS"),
        (CallOrigin("10.0.0.1", "ann"), "ann"),
        (CallOrigin("10.0.0.1", "ann", CERTIFICATE), "ann"),
        (CallOrigin("10.0.0.1", None, CERTIFICATE), "by-certificate"),
    ],
)
async def test_a_call_is_of_the_user_of_its_header_or_certificate(
    origin: CallOrigin, user: str
) -> None:
    async with serving() as found:
        authorizer = Authorizer(found.topics.store, found.topics.clock)
        pattern = ResourcePattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)
        for name, host in ((user, "10.0.0.1"), ("other", ANY_HOST)):
            rule = AclRule(pattern, f"User:{name}", host, Operation.DESCRIBE, Permission.ALLOW)
            await authorizer.create([rule])
        sessions = NativeSessions(
            found.service,
            logins=Headers(),
            name_of_certificate=name_of,
            authorizer=authorizer,
            quotas=RecordedRates(),
            audit=AuditLog(found.topics.clock),
            clock=found.topics.clock,
            timers=Timers(found.topics.clock, found.supervisor),
        )
        session = await sessions.open(origin)
        assert isinstance(session.broker, AuthorizedBroker)
        assert ["public/default"] == await session.broker.namespaces()
        elsewhere = await sessions.open(origin._replace(host="10.0.0.2"))
        with pytest.raises(NotAllowed, match=f"User:{user}"):
            await elsewhere.broker.namespaces()


@pytest.mark.parametrize(
    "origin",
    [
        CallOrigin("::1", "wrong"),
        CallOrigin("::1", "wrong", CERTIFICATE),
        CallOrigin("::1", None, b"rubbish"),
        CallOrigin("::1", None, b"\xff"),
    ],
)
async def test_a_wrong_login_is_not_anonymous(origin: CallOrigin) -> None:
    async with serving() as found:
        sessions = NativeSessions(
            found.service,
            logins=Headers(),
            name_of_certificate=lambda _: None,
            authorizer=None,
            quotas=RecordedRates(),
            audit=AuditLog(found.topics.clock),
            clock=found.topics.clock,
            timers=Timers(found.topics.clock, Supervisor()),
        )
        with pytest.raises(NotAllowed):
            await sessions.open(origin)
        session = await sessions.open(CallOrigin("::1"))
        assert session.broker is found.service
        session.close()


async def test_a_stream_counts_against_the_quotas_of_its_user() -> None:
    async with serving() as found:
        clock, rates = found.topics.clock, RecordedRates(10)
        sessions = NativeSessions(
            found.service,
            logins=Headers(),
            name_of_certificate=None,
            authorizer=None,
            quotas=rates,
            audit=AuditLog(clock),
            clock=clock,
            timers=Timers(clock, found.supervisor),
        )
        session = await sessions.open(CallOrigin("::1", "ann"))
        resumed: list[str] = []
        assert not session.count_produced(10, lambda: resumed.append("produced"))
        assert session.count_delivered(5, lambda: resumed.append("delivered"))
        assert [("produce", "ann", "", 10), ("fetch", "ann", "", 5)] == rates.charged
        clock.advance(4)
        assert session.count_delivered(1, lambda: resumed.append("again")), "6 ms from now on"
        clock.advance(5)
        await ticks()
        assert [] == resumed
        clock.advance(1)
        await ticks()
        assert ["again"] == resumed
        assert session.count_produced(1, lambda: resumed.append("produced"))
        session.close()
        clock.advance(1_000)
        await ticks()
        assert ["again"] == resumed

"""The listener for native clients with TLS and logins, over real sockets."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import kledger
from kledger.native.errors import InvalidArgument, NotAllowed, Unavailable
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.client_credentials import ClientCredentials
from kledger.native.rpc.server import RpcServer
from kledger.native.rpc.sessions import CallOrigin, OpenSessions
from kledger.native.rpc.tls import ClientTls, TlsCredentials, TlsTexts
from kledger.native.server.native_sessions import NativeSessions
from kledger.runtime.clock import SystemClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.security.audit import AuditLog
from kledger.security.json_web_token import TOKEN_BYTES_MAX
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed
from tests.native.recorded_rates import RecordedRates
from tests.native.recording_broker import RecordingBroker
from tests.native.rpc.connected_pair import (
    GRACE_MS,
    MESSAGE_BYTES_MAX,
    TEST_SECONDS,
    PatientClock,
    no_crash,
)
from tests.security.certificates import Identity, authority


class Recording(OpenSessions):
    """Sessions that note where calls come from, and refuse the header `Basic …`."""

    def __init__(self) -> None:
        super().__init__(RecordingBroker())
        self.origins: list[CallOrigin] = []

    async def open(self, origin: CallOrigin) -> "Recording":
        self.origins.append(origin)
        if (origin.authorization or "").startswith("Basic"):
            raise NotAllowed("a wrong password")
        return self


@asynccontextmanager
async def serving(sessions: Recording, tls: TlsCredentials | None) -> AsyncIterator[str]:
    supervisor = Supervisor(no_crash)
    server = RpcServer(
        sessions.broker,
        supervisor=supervisor,
        message_bytes_max=MESSAGE_BYTES_MAX,
        sessions=sessions,
        tls=tls,
    )
    async with asyncio.timeout(TEST_SECONDS):
        _, port = await server.start("127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(grace_ms=GRACE_MS)
            await supervisor.close()


def credentials_of(identity: Identity, trusted: str = "") -> TlsCredentials:
    texts = TlsTexts(key=identity.key, chain=identity.certificate, trusted=trusted)
    shown = iter([texts])
    return TlsCredentials(lambda: next(shown, None), requires_certificate=bool(trusted))


@asynccontextmanager
async def client(address: str, **given: Any) -> AsyncIterator[RpcClient]:
    made = RpcClient(
        address,
        clock=PatientClock(),
        credentials=ClientCredentials(**given),
    )
    try:
        await made.connect()
        yield made
    finally:
        await made.close()


async def test_a_token_and_a_password_are_headers_of_every_call() -> None:
    sessions = Recording()
    server = authority().issue("server", is_server=True)
    tls = ClientTls(ca=authority().pem)
    async with serving(sessions, credentials_of(server)) as address:
        async with client(address, tls=tls, token="a.b.c") as made:
            await made.topics()
        assert {"Bearer a.b.c"} == {each.authorization for each in sessions.origins}
        assert {"127.0.0.1"} == {each.host for each in sessions.origins}
        assert {None} == {each.certificate for each in sessions.origins}
        with pytest.raises(NotAllowed, match="a wrong password"):
            async with client(address, tls=tls, username="ann", password="x"):
                pass


async def test_a_header_may_be_as_long_as_a_token() -> None:
    sessions = Recording()
    token = "t" * TOKEN_BYTES_MAX
    async with serving(sessions, None) as address, client(address, token=token):
        assert f"Bearer {token}" == sessions.origins[0].authorization


async def test_a_certificate_is_required_and_shown_to_the_session(tmp_path: Path) -> None:
    sessions = Recording()
    server = authority().issue("server", is_server=True)
    ann = authority().issue("ann")
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "certificate", "key")}
    for name, text in (
        ("ca", authority().pem), ("certificate", ann.certificate), ("key", ann.key),
    ):  # fmt: skip
        files[name].write_text(text)
    async with serving(sessions, credentials_of(server, authority().pem)) as address:
        tls = ClientTls(**{name: str(path) for name, path in files.items()})
        async with client(address, tls=tls) as made:
            await made.topics()
        assert {ann.certificate.encode()} == {each.certificate for each in sessions.origins}


@pytest.mark.parametrize("shown", ["nothing", "foreign", "server"])
async def test_other_certificates_do_not_connect(shown: str) -> None:
    server = authority().issue("server", is_server=True)
    identity = {
        "nothing": None,
        "foreign": authority("another").issue("ann"),
        "server": authority().issue("ann", is_server=True),
    }[shown]
    tls = ClientTls(ca=authority().pem)
    if identity is not None:
        tls = ClientTls(ca=authority().pem, certificate=identity.certificate, key=identity.key)
    sessions = Recording()
    async with serving(sessions, credentials_of(server, authority().pem)) as address:
        with pytest.raises(Unavailable):
            async with client(address, tls=tls):
                pass
    assert [] == sessions.origins


async def test_clients_of_another_authority_or_without_tls_do_not_connect() -> None:
    sessions = Recording()
    server = authority().issue("server", is_server=True)
    async with serving(sessions, credentials_of(server)) as address:
        for tls in (None, ClientTls(ca=authority("another").pem), ClientTls()):
            with pytest.raises(Unavailable):
                async with client(address, tls=tls):
                    pass
    assert [] == sessions.origins


async def test_new_keys_count_for_new_connections_and_broken_ones_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sessions = Recording()
    old, new = authority(), authority("new")
    shown: list[TlsTexts | ValueError] = []

    def read() -> TlsTexts | None:
        if not shown:
            return None
        first = shown[0]
        if isinstance(first, ValueError):
            raise first
        shown.clear()
        return first

    def texts(identity: Identity) -> TlsTexts:
        return TlsTexts(key=identity.key, chain=identity.certificate)

    shown.append(texts(old.issue("server", is_server=True)))
    async with serving(sessions, TlsCredentials(read)) as address:
        async with client(address, tls=ClientTls(ca=old.pem)):
            pass
        shown.append(ValueError("ssl.keystore.location: gone"))
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                async with client(address, tls=ClientTls(ca=old.pem)):
                    pass
        assert 1 == caplog.text.count("keys stay as they were")
        shown[:] = [texts(new.issue("server", is_server=True))]
        async with client(address, tls=ClientTls(ca=new.pem)):
            pass


def test_a_server_without_keys_does_not_start() -> None:
    with pytest.raises(ValueError, match="private key"):
        TlsCredentials(lambda: None)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"token": ""}, "token"),
        ({"token": "a\nb"}, "token"),
        ({"username": "ann"}, "together"),
        ({"password": "x"}, "together"),
        ({"username": "a:b", "password": "x"}, "colon"),
        ({"username": "ann", "password": "x", "token": "t"}, "not both"),
        ({"ca": "/nowhere"}, r"ca: /nowhere: No such file"),
        ({"ca": "/dev/null"}, "expected a text in PEM"),
        ({"certificate": "-----BEGIN C"}, "certificate and key together"),
    ],
)
async def test_wrong_credentials_are_named_and_not_shown(given: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidArgument, match=error) as caught:
        async with kledger.connect("kledger+tls://127.0.0.1:1", **given):
            pass
    if "password" in given:
        assert given["password"] not in str(caught.value).split()


async def test_certificates_need_the_url_of_tls() -> None:
    with pytest.raises(InvalidArgument, match=r"ca: expected a URL like kledger\+tls://"):
        kledger.connect("kledger://127.0.0.1:1", ca="x")


def test_credentials_are_in_no_text() -> None:
    made = ClientCredentials(
        token="t0ken", password="passw0rd", username="ann", tls=ClientTls(key="k3y")
    )
    assert not any(secret in repr(made) for secret in ("t0ken", "passw0rd", "k3y"))


class Headers:
    """Logins that accept the header of ann, for a second."""

    async def login(self, header: str, address: str) -> Authenticated:
        if header != "Bearer ann":
            raise AuthenticationFailed("not ann")
        now_ms = SystemClock().now_ms()
        return Authenticated(principal=Principal("ann"), expires_at_ms=now_ms + 200)


async def test_a_stream_ends_when_its_login_expires() -> None:
    supervisor = Supervisor(no_crash)
    clock = SystemClock()
    broker = RecordingBroker()
    sessions = NativeSessions(
        broker,
        logins=Headers(),
        name_of_certificate=None,
        authorizer=None,
        quotas=RecordedRates(),
        audit=AuditLog(clock),
        clock=clock,
        timers=Timers(clock, supervisor),
    )
    server = RpcServer(
        broker,
        supervisor=supervisor,
        message_bytes_max=MESSAGE_BYTES_MAX,
        sessions=sessions,
    )
    async with asyncio.timeout(TEST_SECONDS):
        _, port = await server.start("127.0.0.1", 0)
        ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            with pytest.raises(NotAllowed, match="not ann"):
                async with client(f"127.0.0.1:{port}", token="bob"):
                    pass
            async with client(f"127.0.0.1:{port}", token="ann") as made:
                await made.open_producer("t", 0, name="p", on_ended=ended.set_result)
                error = await ended
                assert isinstance(error, NotAllowed)
                assert "expired" in str(error)
        finally:
            await server.stop(grace_ms=GRACE_MS)
            await supervisor.close()

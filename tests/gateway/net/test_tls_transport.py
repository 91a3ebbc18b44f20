"""TLS over real sockets: certificates, limits, and clients that speak something else."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kledger.gateway.net.authentication_state import LOGIN_TIMEOUT_MS
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from kledger.gateway.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from kledger.security.principal import ANONYMOUS, Principal
from kledger.security.tls.certificates import (
    CLIENT_USE,
    KeyAndCertificate,
    make_authority,
    make_certificate,
)
from tests.gateway.listening import (
    NOW_MS,
    ListeningGateway,
    SecureClient,
    certificate,
    client_context,
    listening_gateway,
)
from tests.gateway.running import batch, fetch, produce, until
from tests.gateway.wire_client import WireClient

RECORD_BYTES = 700_000
"""Of each record: more than a buffer of the socket, and no multiple of a record of TLS."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@asynccontextmanager
async def connected(
    listening: ListeningGateway,
    folder: Path,
    *,
    name: str = "SSL",
    own: KeyAndCertificate | None = None,
) -> AsyncIterator[WireClient]:
    client = SecureClient(*listening.addresses[name], client_context(folder, own))
    await client.connect()
    try:
        yield client
    finally:
        client.writer.transport.abort()


async def is_served(
    listening: ListeningGateway, folder: Path, own: KeyAndCertificate | None = None
) -> bool:
    """Return whether a client with a certificate, or without one, gets an answer."""
    try:
        async with connected(listening, folder, own=own) as client:
            await client.ask(MetadataRequest(topics=[]), 9)
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


def principals(listening: ListeningGateway) -> list[Principal]:
    return [each.peer.principal for each in listening.server.connections]


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
async def test_the_principal_is_the_subject_where_one_is_asked_for(auth: str, folder: Path) -> None:
    async with (
        listening_gateway("SSL", ssl_client_auth=auth) as listening,
        connected(listening, folder, own=certificate("app")) as client,
    ):
        await client.ask(MetadataRequest(topics=[]), 9)
        expected = ANONYMOUS if auth == "none" else Principal("CN=app")
        assert [expected] == principals(listening)


async def test_rules_map_the_subject(folder: Path) -> None:
    rules = "RULE:CN=(.*)/$1/U"
    async with (
        listening_gateway(
            "SSL", ssl_client_auth="required", ssl_principal_mapping_rules=rules
        ) as listening,
        connected(listening, folder, own=certificate("app")) as client,
    ):
        await client.ask(MetadataRequest(topics=[]), 9)
        assert [Principal("APP")] == principals(listening)


async def test_a_subject_that_no_rule_fits_is_refused(folder: Path) -> None:
    async with listening_gateway(
        "SSL", ssl_client_auth="required", ssl_principal_mapping_rules="RULE:O=.*/x/"
    ) as listening:
        assert not await is_served(listening, folder, certificate("app"))


def of_another_authority() -> KeyAndCertificate:
    return make_certificate(
        make_authority("another", NOW_MS), "app", use=CLIENT_USE, now_ms=NOW_MS, days=36_500
    )


async def test_certificates_that_are_not_good_are_refused(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {
        "of another authority": of_another_authority(),
        "of a server": certificate("app", is_server=True),
        "expired": certificate("app", days=1),
    }
    for auth in ("requested", "required"):
        async with listening_gateway("SSL", ssl_client_auth=auth) as listening:
            for what, own in bad.items():
                assert not await is_served(listening, folder, own), (auth, what)
            assert (auth == "requested") == await is_served(listening, folder)
            assert await is_served(listening, folder, certificate("app"))
    assert any("CERTIFICATE_VERIFY_FAILED" in line for line in caplog.messages)


async def test_a_certificate_is_no_login_where_there_are_logins(folder: Path) -> None:
    async with (
        listening_gateway("SASL_SSL", ssl_client_auth="required") as listening,
        connected(listening, folder, name="SASL_SSL", own=certificate("app")) as client,
    ):
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = b"\0alice\0alice-secret"
        assert 0 == (await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code
        await client.ask(MetadataRequest(topics=[]), 9)
        assert [Principal("alice")] == principals(listening)


async def test_a_certificate_alone_does_not_get_in_where_there_are_logins(folder: Path) -> None:
    async with (
        listening_gateway("SASL_SSL", ssl_client_auth="required") as listening,
        connected(listening, folder, name="SASL_SSL", own=certificate("app")) as client,
    ):
        client.send(MetadataRequest(topics=[]), 9)
        assert await client.is_closed_by_server()


async def test_large_requests_and_responses_pass_whole_and_pipelined(folder: Path) -> None:
    async with (
        listening_gateway("SSL") as listening,
        connected(listening, folder) as client,
    ):
        await listening.gateway.create_topic()
        values = [bytes([number]) * RECORD_BYTES for number in range(5)]
        for value in values:
            client.send(produce({0: batch(value)}), 9)
        for _ in values:
            answer = await client.receive()
            assert 0 == answer.responses[0].partition_responses[0].error_code
        for number, value in enumerate(values):
            request = fetch({0: number}, partition_max_bytes=1)
            answer = await client.ask(request, 12)
            assert value in bytes(answer.responses[0].partitions[0].records)


async def test_a_client_that_reads_nothing_waits_and_gets_everything_later(folder: Path) -> None:
    """Responses wait for the socket, and reading stops meanwhile; then both go on."""
    count = 40
    async with (
        listening_gateway("SSL", send_buffer_max_bytes=100_000) as listening,
        connected(listening, folder) as client,
    ):
        await listening.gateway.create_topic()
        await client.ask(produce({0: batch(b"x" * RECORD_BYTES)}), 9)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            client.send(fetch({0: 0}), 12)
        (connection,) = listening.server.connections
        await until(lambda: connection.unsent_bytes > 100_000)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            answer = await client.receive()
            assert len(answer.responses[0].partitions[0].records) > RECORD_BYTES


async def test_a_client_without_tls_is_closed_at_once_with_one_line(
    caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    caplog.set_level(logging.INFO)
    async with listening_gateway("SSL") as listening:
        async with listening.client("SSL") as client:
            client.send(MetadataRequest(topics=[]), 9, is_answered=False)
            await until(lambda: bool(caplog.messages))
            await until(lambda: not listening.server.connections)
        (line,) = caplog.messages
        assert line.startswith("closing connection of 127.0.0.1: TLS: ")
        assert await is_served(listening, folder)


async def test_tls_on_a_listener_without_it_is_closed_at_once_with_one_line(
    caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    caplog.set_level(logging.INFO)
    async with listening_gateway("PLAINTEXT", "SASL_PLAINTEXT") as listening:
        for name in listening.addresses:
            caplog.clear()
            client = SecureClient(*listening.addresses[name], client_context(folder))
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await client.connect()
            (line,) = (each for each in caplog.messages if "closing connection" in each)
            assert "frame" in line


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_handshake_that_does_not_end_is_closed(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening_gateway("SSL") as listening, listening.client("SSL") as client:
        client.writer.write(sent)
        await until(lambda: len(listening.server.connections) == 1)
        listening.gateway.clock.advance(LOGIN_TIMEOUT_MS)
        await until(lambda: not listening.server.connections)
        assert any("no login within 10000 ms" in line for line in caplog.messages)


async def test_a_probe_that_sends_nothing_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    async with listening_gateway("SSL") as listening:
        async with listening.client("SSL"):
            await until(lambda: len(listening.server.connections) == 1)
        await until(lambda: not listening.server.connections)
        assert not [each for each in caplog.messages if "closing" in each]


async def test_many_handshakes_at_once_all_end(folder: Path) -> None:
    async with listening_gateway("SSL") as listening:
        served = await asyncio.gather(*(is_served(listening, folder) for _ in range(50)))
        assert all(served)


async def test_a_new_certificate_is_for_new_connections(folder: Path) -> None:
    file = folder / "server.pem"
    first, second = (certificate(name, is_server=True) for name in ("first", "second"))
    file.write_text(first.key + first.certificate)
    async with (
        listening_gateway("SSL", ssl_keystore_location=str(file), ssl_keystore_key="") as listening,
        connected(listening, folder) as client,
    ):
        file.write_text(second.key + second.certificate)
        async with connected(listening, folder) as later:
            for each, name in ((client, "first"), (later, "second")):
                await each.ask(MetadataRequest(topics=[]), 9)
                shown = each.writer.get_extra_info("peercert")
                assert ((("commonName", name),),) == shown["subject"]


async def test_a_stop_answers_and_closes_in_order(folder: Path) -> None:
    async with (
        listening_gateway("SSL") as listening,
        connected(listening, folder) as client,
    ):
        await client.ask(MetadataRequest(topics=[]), 9)
        await listening.server.stop()
        assert await client.is_closed_by_server()

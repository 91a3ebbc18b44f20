"""Logins over real sockets: who gets in, who does not, and what a client may cost before."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

import kledger.gateway.net.logins as logins_module
from kledger.gateway.net.authentication_state import FRAME_BYTES_MAX, LOGIN_TIMEOUT_MS
from kledger.gateway.net.failed_logins_state import FAILURES_MAX
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.gateway.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kledger.gateway.wire.messages.k60_describe_cluster import DescribeClusterRequest
from kledger.gateway.wire.schema import ApiMessage
from kledger.security.credentials import make_credential
from kledger.security.principal import Principal
from tests.gateway.listening import PASSWORD, SCRAM, ListeningGateway, listening_gateway
from tests.gateway.running import until
from tests.gateway.wire_client import WireClient
from tests.security.sasl.test_scram_state import Client

UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 33, 34, 58
RIGHT, WRONG = b"\0alice\0alice-secret", b"\0alice\0hush-hush"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Keep every line, and check that none has a password."""
    caplog.set_level(logging.DEBUG)
    yield
    assert not [line for line in caplog.messages if "secret" in line or "hush" in line]


async def begin(client: WireClient, mechanism: str = "PLAIN", version: int = 1) -> None:
    answer = await client.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    assert (0, ["PLAIN", "SCRAM-SHA-256"]) == (answer.error_code, answer.mechanisms)


async def log_in(client: WireClient, token: bytes = RIGHT, version: int = 2) -> int:
    """Log in with PLAIN; return how long the session lasts."""
    await begin(client)
    answer = await client.ask(SaslAuthenticateRequest(auth_bytes=token), version)
    assert 0 == answer.error_code
    return int(answer.session_lifetime_ms) if version else 0


async def log_in_with_scram(client: WireClient, password: str) -> None:
    await begin(client, SCRAM.sasl_name)
    near = Client(password=password)
    first = await client.ask(SaslAuthenticateRequest(auth_bytes=near.first()), 1)
    final = near.final(first.auth_bytes)
    second = await client.ask(SaslAuthenticateRequest(auth_bytes=final), 1)
    assert second.auth_bytes.startswith(b"v=")


def principals(listening: ListeningGateway) -> list[Principal]:
    return [each.peer.principal for each in listening.server.connections]


async def let_fail(
    listening: ListeningGateway, client: WireClient, request: ApiMessage, version: int
) -> None:
    """Send what makes a login fail, and let the 100 ms pass that its end waits for."""
    timers = listening.gateway.services.timers
    count = len(timers) + 2  # the line of the log, and the end of the login
    client.send(request, version)
    await until(lambda: len(timers) >= count)
    listening.gateway.clock.advance(100)


async def answered_after_the_delay(
    listening: ListeningGateway, client: WireClient, token: bytes
) -> SaslAuthenticateResponse:
    """Send a token of a login that fails; return the answer."""
    await let_fail(listening, client, SaslAuthenticateRequest(auth_bytes=token), 2)
    answer = await client.receive()
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_login_with_plain_gives_a_principal(version: int) -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await client.ask(ApiVersionsRequest(), 0)
        await log_in(client, version=version)
        assert [Principal("alice")] == principals(listening)
        await client.ask(MetadataRequest(topics=[]), 9)


async def test_a_login_with_scram() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await log_in_with_scram(client, PASSWORD)
        assert [Principal("alice")] == principals(listening)


async def test_a_password_that_another_broker_has_changed_counts() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        services = listening.gateway.services

        async def catch_up() -> None:
            changed = make_credential(SCRAM, "brush", b"salt", 4096)
            await services.users.alter({("alice", SCRAM.sasl_name): changed}.items())

        services.catch_up = catch_up
        await log_in_with_scram(client, "brush")
        assert [Principal("alice")] == principals(listening)


async def test_tokens_are_frames_of_their_own_after_a_handshake_of_version_0() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await begin(client, version=0)
        client.send_frame(RIGHT)
        assert b"\0\0\0\0" == await client.reader.readexactly(4)
        await client.ask(MetadataRequest(topics=[]), 9)
        assert [Principal("alice")] == principals(listening)


@pytest.mark.parametrize("token", [WRONG, b"\0mallory\0hush-hush"])
async def test_a_wrong_password_is_answered_after_a_delay_and_closes(token: bytes) -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await begin(client)
        answer = await answered_after_the_delay(listening, client, token)
        assert FAILED == answer.error_code
        assert "Invalid username or password" in (answer.error_message or "")
        assert await client.is_closed_by_server()


async def test_a_malformed_token_closes_without_an_answer() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await begin(client, "SCRAM-SHA-256")
        token = b"n,,n=alice,r=" + b"x" * 60_000
        await let_fail(listening, client, SaslAuthenticateRequest(auth_bytes=token), 2)
        assert await client.is_closed_by_server()


async def test_an_unknown_mechanism_is_answered_with_those_that_are_offered() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await let_fail(listening, client, SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        answer = await client.receive()
        assert (UNSUPPORTED_MECHANISM, ["PLAIN", "SCRAM-SHA-256"]) == (
            answer.error_code,
            answer.mechanisms,
        )
        assert await client.is_closed_by_server()


async def test_other_requests_before_a_login_close_and_say_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        client.send(MetadataRequest(topics=[]), 9)
        assert await client.is_closed_by_server()
        assert any("key 3 in the middle of a login" in line for line in caplog.messages)
        assert not listening.server.connections


async def test_a_large_frame_before_a_login_closes() -> None:
    """The server takes no memory for a size that a stranger announces."""
    async with listening_gateway("SASL_PLAINTEXT") as listening:
        for size in (FRAME_BYTES_MAX + 1, 0x7FFFFFFF):
            async with listening.client() as client:
                client.writer.write(size.to_bytes(4, "big"))
                assert await client.is_closed_by_server()
        async with listening.client() as client:
            await log_in(client)
            client.writer.write((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
            client.writer.write(client.frame(MetadataRequest(topics=[]), 9)[:8])
            await until(lambda: bool(listening.server.connections))
            assert not listening.server.connections[0].is_closed


async def test_lies_in_counts_before_a_login_close() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening:
        for body in (b"\x7f\xff", b"\xff\xff", b"\0\5PLA"):
            async with listening.client() as client:
                client.send_frame(b"\0\x11\0\1\0\0\0\1\0\0" + body)
                assert await client.is_closed_by_server()


async def test_lies_in_tags_before_a_login_close() -> None:
    """Tagged fields of a header, and of ApiVersions 3: a count and a size that are not there."""
    in_header = (b"\xff\xff\xff\xff\x0f", b"\x01\x05\xff\xff\xff\xff\x07x")
    in_body = tuple(b"\0\2a\2b" + each for each in in_header)
    async with listening_gateway("SASL_PLAINTEXT") as listening:
        for rest in (*in_header, *in_body):
            async with listening.client() as client:
                client.send_frame(b"\0\x12\0\3\0\0\0\1\0\0" + rest)
                assert await client.is_closed_by_server()
        async with listening.client() as client:
            client.send_frame(b"\0\x12\0\3\0\0\0\1\0\0" + b"\1\x63\1x" + b"\2a\2b\0")
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            answer = await client.reader.readexactly(size)
            assert b"\0\0\0\1\0\0" == answer[:6], "an unknown tag is skipped"


async def test_a_silent_client_is_closed_after_the_time_for_a_login() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await until(lambda: len(listening.server.connections) == 1)
        listening.gateway.clock.advance(LOGIN_TIMEOUT_MS)
        assert await client.is_closed_by_server()


async def test_a_client_that_logged_in_is_not_closed_by_that() -> None:
    async with listening_gateway("SASL_PLAINTEXT") as listening, listening.client() as client:
        await log_in(client)
        listening.gateway.clock.advance(LOGIN_TIMEOUT_MS)
        await client.ask(MetadataRequest(topics=[]), 9)


async def test_silent_connections_keep_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the oldest goes, and a client with a password gets in."""
    monkeypatch.setattr(logins_module, "UNAUTHENTICATED_MAX", 20)
    async with listening_gateway("SASL_PLAINTEXT") as listening:
        silent = [
            await asyncio.open_connection(*listening.addresses["SASL_PLAINTEXT"]) for _ in range(60)
        ]
        async with listening.client() as client:
            await log_in(client)
            assert Principal("alice") in principals(listening)
            await until(lambda: len(listening.server.connections) <= 21)
        for _, writer in silent:
            writer.close()


async def test_an_address_with_many_failures_waits(caplog: pytest.LogCaptureFixture) -> None:
    async with listening_gateway(
        "SASL_PLAINTEXT", connection_failed_authentication_delay_ms=0
    ) as listening:
        for _ in range(FAILURES_MAX):
            async with listening.client() as client:
                await begin(client, version=0)
                client.send_frame(b"\0only two fields")
                assert await client.is_closed_by_server()
        async with listening.client() as client:
            await begin(client)
            client.send(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
            assert await client.is_closed_by_server()
        listening.gateway.clock.advance(1_000)
        async with listening.client() as client:
            await log_in(client)
        await until(lambda: any("failed logins" in line for line in caplog.messages))
        (line,) = (line for line in caplog.messages if "failed logins" in line)
        assert f'address="127.0.0.1" count={FAILURES_MAX} last=' in line


async def test_a_session_ends_unless_the_client_logs_in_again() -> None:
    async with (
        listening_gateway("SASL_PLAINTEXT", connections_max_reauth_ms=5_000) as listening,
        listening.client() as client,
    ):
        assert 5_000 == await log_in(client)
        listening.gateway.clock.advance(4_000)
        assert 5_000 == await log_in(client)
        listening.gateway.clock.advance(4_000)
        await client.ask(MetadataRequest(topics=[]), 9)
        listening.gateway.clock.advance(1_000)
        client.send(MetadataRequest(topics=[]), 9)
        assert await client.is_closed_by_server()


async def test_after_the_end_of_a_session_another_login_is_answered() -> None:
    async with (
        listening_gateway("SASL_PLAINTEXT", connections_max_reauth_ms=5_000) as listening,
        listening.client() as client,
    ):
        await log_in(client)
        listening.gateway.clock.advance(6_000)
        await log_in(client)
        await client.ask(MetadataRequest(topics=[]), 9)


async def test_another_login_as_somebody_else_closes() -> None:
    async with (
        listening_gateway("SASL_PLAINTEXT", connections_max_reauth_ms=60_000) as listening,
        listening.client() as client,
    ):
        await log_in(client)
        listening.gateway.clock.advance(2_000)
        await begin(client)
        answer = await answered_after_the_delay(listening, client, b"\0bob\0bob-secret")
        assert FAILED == answer.error_code
        assert await client.is_closed_by_server()


async def test_a_login_so_soon_after_another_is_illegal() -> None:
    async with (
        listening_gateway("SASL_PLAINTEXT", connections_max_reauth_ms=60_000) as listening,
        listening.client() as client,
    ):
        await log_in(client)
        listening.gateway.clock.advance(2_000)
        await log_in(client)
        answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert ILLEGAL_STATE == answer.error_code


async def test_a_listener_without_logins_answers_that_they_are_illegal() -> None:
    async with listening_gateway("PLAINTEXT") as listening, listening.client("PLAINTEXT") as client:
        answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert ILLEGAL_STATE == answer.error_code
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
        assert ILLEGAL_STATE == answer.error_code


async def test_clients_are_answered_with_the_listener_that_they_came_in_on() -> None:
    async with listening_gateway(
        "PLAINTEXT", "SASL_PLAINTEXT", advertised_addresses="SASL_PLAINTEXT://kafka.example:443"
    ) as listening:
        expected = {
            "PLAINTEXT": listening.addresses["PLAINTEXT"],
            "SASL_PLAINTEXT": ("kafka.example", 443),
        }
        for name, address in expected.items():
            async with listening.client(name) as client:
                if name == "SASL_PLAINTEXT":
                    await log_in(client)
                metadata = await client.ask(MetadataRequest(topics=[]), 9)
                assert [address] == [(each.host, each.port) for each in metadata.brokers]
                found = await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
                assert [address] == [(each.host, each.port) for each in found.coordinators]
                cluster = await client.ask(DescribeClusterRequest(), 0)
                assert [address] == [(each.host, each.port) for each in cluster.brokers]

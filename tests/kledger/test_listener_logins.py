"""One server, its users and rules: the native listener, the admin listener and Kafka clients."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

import kledger
import kledger.sync
from kledger.gateway.config import GatewayConfig
from kledger.runtime.clock import SystemClock
from kledger.security.authorizer import STANDARD_AUTHORIZER
from kledger.testing import Server
from kledger.wiring import CannotStart
from tests.security.certificates import authority
from tests.security.token_words import (
    AUDIENCE,
    ISSUER,
    assembled,
    claims,
    key_set_json,
    public,
    rsa_key,
    signed,
)

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_admin="admin-pw" user_ann="ann-pw";'
)


def settings_of(folder: Path, **more: object) -> dict[str, object]:
    """Settings of a server with TLS, passwords, access tokens and rules; admin is a super user."""
    server = authority().issue("server", is_server=True)
    (folder / "server.pem").write_text(server.key + server.certificate)
    (folder / "ca.pem").write_text(authority().pem)
    (folder / "keys.json").write_bytes(key_set_json(public(rsa_key())))
    return {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:CN=ops,O=tests",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "native.tls": True,
        "ssl.keystore.location": str(folder / "server.pem"),
        **more,
    }


@asynccontextmanager
async def serving(folder: Path, **more: object) -> AsyncIterator[Server]:
    server = Server(native="127.0.0.1:0", admin="127.0.0.1:0", settings=settings_of(folder, **more))
    async with server:
        yield server


def connect(server: Server, **credentials: Any) -> kledger.Client:
    return kledger.connect(
        f"kledger+tls://{server.native_address}", ca=authority().pem, **credentials
    )


def now_s() -> int:
    return SystemClock().now_ms() // 1000


async def test_native_clients_are_the_users_of_the_kafka_listeners(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as server,
        connect(server, username="admin", password="admin-pw") as admin,
    ):
        await admin.create_topic("orders", partitions=1)
        producer = await admin.create_producer("orders")
        await producer.send(b"one")
        async with connect(server, username="ann", password="ann-pw") as ann:
            with pytest.raises(kledger.NotAllowed, match="User:ann"):
                await ann.create_producer("orders")
        for wrong in ({"username": "ann", "password": "x"}, {"token": "a.b.c"}):
            with pytest.raises(kledger.NotAllowed):
                async with connect(server, **wrong):
                    pass
        async with connect(server) as stranger:
            with pytest.raises(kledger.NotAllowed, match="User:ANONYMOUS"):
                await stranger.create_reader("orders", "earliest")


async def test_access_tokens_open_both_listeners(tmp_path: Path) -> None:
    token = signed(claims(sub="admin", exp=now_s() + 600, iat=None))

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        def __init__(self, given: str) -> None:
            self._given = given

        async def token(self) -> str:
            return self._given

    async with serving(tmp_path) as server:
        async with connect(server, token=token) as client:
            await client.create_topic("orders", partitions=1)
        oauth: dict[str, Any] = {
            "bootstrap_servers": server.kafka_address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
        }
        async with AIOKafkaProducer(**oauth, sasl_oauth_token_provider=Tokens(token)) as producer:
            assert 0 == (await producer.send_and_wait("orders", b"one")).offset
        unsecured = assembled({"alg": "none"}, {"sub": "admin", "exp": now_s() + 600})
        for wrong in (signed(claims(sub="admin")), unsecured):
            with pytest.raises(KafkaError):
                async with AIOKafkaProducer(**oauth, sasl_oauth_token_provider=Tokens(wrong)):
                    pass


async def test_a_certificate_is_a_login(tmp_path: Path) -> None:
    ops = authority().issue("ops")
    (tmp_path / "ca.pem").write_text(authority().pem)
    required = {
        "ssl.client.auth": "required", "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }  # fmt: skip
    async with serving(tmp_path, **required) as server:
        async with connect(server, certificate=ops.certificate, key=ops.key) as client:
            await client.create_topic("orders", partitions=1)
        with pytest.raises(kledger.Unavailable):
            async with connect(server, username="admin", password="admin-pw"):
                pass


async def test_metrics_are_for_users_that_may_describe_the_cluster(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        url = f"http://{server.admin_address}"
        for user, status in (
            (None, 401), (("ann", "ann-pw"), 403), (("admin", "admin-pw"), 200),
            (("admin", "ann-pw"), 401),
        ):  # fmt: skip
            headers = {}
            if user is not None:
                headers["Authorization"] = aiohttp.encode_basic_auth(*user)
            async with aiohttp.ClientSession(headers=headers) as client:
                async with client.get(f"{url}/metrics") as response:
                    assert status == response.status
                async with client.get(f"{url}/health") as response:
                    assert 200 == response.status


async def test_an_encrypted_key_is_read_with_its_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    settings = settings_of(tmp_path)
    identity = authority().issue("server", is_server=True)
    encrypted = serialization.load_pem_private_key(identity.key.encode(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"key-pw"),
    )
    (tmp_path / "server.pem").write_text(encrypted.decode() + identity.certificate)
    settings["ssl.key.password"] = "key-pw"
    async with (
        Server(native="127.0.0.1:0", settings=settings) as server,
        connect(server, username="admin", password="admin-pw") as client,
    ):
        await client.create_topic("orders", partitions=1)
    settings["ssl.key.password"] = "another"
    with pytest.raises(CannotStart, match=r"ssl\.keystore") as caught:
        async with Server(native="127.0.0.1:0", settings=settings):
            pass
    assert "another" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"ssl.keystore.location": ""}, "ssl.keystore"),
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location"),
        ({"ssl.client.auth": "required"}, "ssl.truststore"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules"),
        ({"sasl.oauthbearer.expected.issuer": ""}, "sasl.oauthbearer.expected.issuer"),
        ({"sasl.oauthbearer.expected.audience": ""}, "sasl.oauthbearer.expected.audience"),
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "sasl.oauthbearer.jwks.endpoint.url"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere"},
            "sasl.oauthbearer.jwks.endpoint.url",
        ),
        ({"sasl.server.callback.handler.class": "x.Y"}, "sasl.server.callback.handler.class"),
    ],
)
async def test_a_setting_that_cannot_work_ends_the_start(
    tmp_path: Path, changed: dict[str, object], named: str
) -> None:
    with pytest.raises(CannotStart, match=named) as caught:
        async with serving(tmp_path, **changed):
            pass
    assert caught.value.is_mistake
    assert "\n" not in str(caught.value)


async def test_listeners_for_everybody_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with Server(native="0.0.0.0:0", admin="0.0.0.0:0"):
            pass
    for setting in ("server.native", "server.admin"):
        assert f"{setting}: listening without authentication" in caplog.text


async def test_no_secret_is_in_the_log_or_in_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = ("admin-pw", "wrong-pw", "s3cret-key")
    token = signed(claims(sub="ann", exp=now_s() + 600))
    with caplog.at_level(logging.DEBUG):
        async with serving(tmp_path, **{"delegation.token.secret.key": "s3cret-key"}) as server:
            for credentials in (
                {"username": "admin", "password": "admin-pw"},
                {"username": "admin", "password": "wrong-pw"},
                {"token": token},
            ):
                try:
                    async with connect(server, **credentials) as client:
                        await client.topics()
                except kledger.NotAllowed as error:
                    caplog.records.append(logging.LogRecord("", 0, "", 0, str(error), None, None))
    texts = [record.getMessage() for record in caplog.records]
    assert texts
    for secret in (*secrets, token, token.split(".")[2]):
        assert not any(secret in text for text in texts)
    assert "s3cret-key" not in repr(GatewayConfig())


def test_the_blocking_client_takes_the_same_credentials(tmp_path: Path) -> None:
    from kledger.testing import ServerThread

    with ServerThread(native="127.0.0.1:0", settings=settings_of(tmp_path)) as server:
        url = f"kledger+tls://{server.native_address}"
        with kledger.sync.connect(
            url, ca=authority().pem, username="admin", password="admin-pw"
        ) as client:
            client.create_topic("orders", partitions=1)
        with (
            pytest.raises(kledger.NotAllowed),
            kledger.sync.connect(url, ca=authority().pem, username="admin", password="x"),
        ):
            pass

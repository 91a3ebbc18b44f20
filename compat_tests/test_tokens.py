"""Tokens with Apache Kafka's own tools: delegation tokens, and access tokens of an issuer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from joserfc import jws
from joserfc.jwk import RSAKey

from compat_tests import peers
from compat_tests.conftest import TOOL_JVM, Tool, checked, make_kledger, process_output
from compat_tests.servers.secrets import shown_secrets
from compat_tests.test_java_tools import TOOLS

pytestmark = pytest.mark.peer("kafka-java-tools")
TOKENS = f"{TOOLS}.DelegationTokenCommand"
TOPICS = f"{TOOLS}.TopicCommand"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
ISSUER, AUDIENCE = "https://issuer.example", "kledger"


class TokenServer(NamedTuple):
    """A server with users, and the key of an issuer that it trusts."""

    address: str
    folder: Path
    key: RSAKey
    secrets: set[str]
    """What the log must not show beside the secrets of the settings."""

    def properties(self, name: str, **lines: str) -> str:
        """Write the properties of a client; return the path of the file."""
        file = self.folder / f"{name}.properties"
        given = {"security.protocol": "SASL_PLAINTEXT"} | {
            key.replace("_", "."): value for key, value in lines.items()
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        return str(file)


@pytest.fixture(scope="module")
def token_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TokenServer]:
    """A server that takes passwords, delegation tokens and access tokens."""
    folder = tmp_path_factory.mktemp("tokens")
    key = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
    (folder / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    server = make_kledger(pytestconfig, folder, durability="os")
    # Without a login, a client may do nothing; the start waits for an answer there.
    address = server.listen_as("PLAINTEXT", "SASL_PLAINTEXT")["SASL_PLAINTEXT"]
    server.settings |= {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} user_admin="admin-secret" user_alice="alice-secret";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "of-the-server",
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with server:
        yield TokenServer(address, folder, key, server.secrets)


@pytest.mark.feature("security: delegation tokens are created, used, renewed and expired")
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_delegation_token_acts_for_its_owner(
    java: Tool, token_server: TokenServer, mechanism: str
) -> None:
    def run(tool: str, file: str, *arguments: str, expect: int = 0) -> str:
        place = ("--bootstrap-server", token_server.address, "--command-config", file)
        return java(tool, *place, *arguments, expect=expect)

    users = {
        name: token_server.properties(
            name,
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'{PLAIN} username="{name}" password="{name}-secret";',
        )
        for name in ("admin", "alice")
    }
    topic = f"orders-{mechanism.lower()}"
    run(TOPICS, users["admin"], "--create", "--topic", topic)
    forever = ("--max-life-time-period", "-1")
    renewer = ("--renewer-principal", "User:alice")
    created = run(TOKENS, users["admin"], "--create", *forever, *renewer)
    found = re.search(r"(?m)^(\S+)\s+(\S+==)\s+User:admin", created)
    assert found is not None, created
    token_id, token_hmac = found.groups()

    holder = token_server.properties(
        "holder",
        sasl_mechanism=mechanism,
        sasl_jaas_config=(
            f'{SCRAM} username="{token_id}" password="{token_hmac}" tokenauth="true";'
        ),
    )
    assert topic in run(TOPICS, holder, "--list").split()
    token_server.secrets.add(token_hmac)
    refused = run(TOKENS, holder, "--create", *forever, expect=1)
    assert token_hmac not in refused

    of_admin = ("--describe", "--owner-principal", "User:admin")
    assert token_id in run(TOKENS, users["alice"], *of_admin)
    change = ("--hmac", token_hmac)
    run(TOKENS, users["alice"], "--renew", "--renew-time-period", "-1", *change)
    run(TOKENS, users["alice"], "--expire", "--expiry-time-period", "-1", *change)
    assert token_id not in run(TOKENS, users["admin"], *of_admin)
    run(TOPICS, holder, "--list", expect=1)


@pytest.mark.feature("configs: secrets of a broker are described without their values")
def test_no_configuration_shows_a_secret(java: Tool, token_server: TokenServer) -> None:
    admin = token_server.properties(
        "root",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=f'{PLAIN} username="admin" password="admin-secret";',
    )
    described = java(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", token_server.address, "--command-config", admin),
        *("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
    )
    assert "delegation.token.secret.key=null sensitive=true" in described
    assert not shown_secrets(described, ("of-the-server", "admin-secret", "alice-secret"))


@pytest.mark.feature("security: access tokens (OAUTHBEARER)")
def test_an_access_token_of_the_issuer_logs_in(token_server: TokenServer) -> None:
    def run(audience: str, expect: int) -> str:
        now_s = int(time.time())
        claims = {
            "iss": ISSUER, "aud": audience, "sub": "admin", "iat": now_s, "exp": now_s + 600,
        }  # fmt: skip
        token = jws.serialize_compact(
            {"alg": "RS256", "kid": "one"}, json.dumps(claims), token_server.key
        )
        token_server.secrets.add(token)
        file = token_server.folder / "token.jwt"
        file.write_text(token)
        properties = token_server.properties(
            "oauth",
            sasl_mechanism="OAUTHBEARER",
            sasl_jaas_config=f"{OAUTH};",
            sasl_oauthbearer_token_endpoint_url=file.as_uri(),
            sasl_login_callback_handler_class=(
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
        )
        # Kafka's clients read only files that the process was started for.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}"
        allowed_file = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={file}"
        arguments = (
            "--bootstrap-server", token_server.address, "--command-config", properties, "--list",
        )  # fmt: skip
        command = peers.java_command(TOPICS, *arguments, options=(*TOOL_JVM, allowed, allowed_file))
        return checked(process_output(command), expect).stderr

    run(AUDIENCE, 0)
    assert "SaslAuthenticationException" in run("another", 1)

"""A gateway for tests with listeners of any protocol, users and certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kledger.gateway.config import GatewayConfig, PrefixedSettings
from kledger.gateway.listeners.endpoint import make_endpoint
from kledger.gateway.listeners.listener_settings import plans_of
from kledger.gateway.net.server import GatewayServer
from kledger.security.credentials import ScramMechanism, make_credential
from kledger.security.sasl.mechanisms import Mechanisms
from kledger.security.secret_text import SecretText
from kledger.security.tls.certificates import (
    CLIENT_USE,
    SERVER_USE,
    KeyAndCertificate,
    make_authority,
    make_certificate,
)
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.wire_client import WireClient

NOW_MS = 1_700_000_000_000
DAYS = 36_500
SCRAM = ScramMechanism.SHA_256
PASSWORD = "pencil"
JAAS = 'PlainLoginModule required user_alice="alice-secret" user_bob="bob-secret";'


@cache
def authority() -> KeyAndCertificate:
    return make_authority("authority", NOW_MS)


@cache
def certificate(name: str, *, is_server: bool = False, days: int = DAYS) -> KeyAndCertificate:
    use = SERVER_USE if is_server else CLIENT_USE
    return make_certificate(
        authority(), name, use=use, now_ms=NOW_MS, hosts=["127.0.0.1"], days=days
    )


def client_context(folder: Path, own: KeyAndCertificate | None = None) -> ssl.SSLContext:
    """Return what clients connect with, with a certificate of their own or without."""
    context = ssl.create_default_context(cadata=authority().certificate)
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if own is not None:
        file = folder / "client.pem"
        file.write_text(own.key + own.certificate)
        context.load_cert_chain(file)
    return context


class SecureClient(WireClient):
    """A client with TLS."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port)
        self._context = context

    async def connect(self) -> None:
        """Connect with TLS, in place of entering."""
        self.reader, self.writer = await asyncio.open_connection(*self._address, ssl=self._context)


@dataclass
class ListeningGateway:
    """A gateway, and the addresses of its listeners by name."""

    gateway: RunningGateway
    server: GatewayServer
    addresses: dict[str, tuple[str, int]] = field(default_factory=dict)

    def client(self, name: str = "SASL_PLAINTEXT") -> WireClient:
        """Return a client of a listener, which connects when it is entered."""
        return WireClient(*self.addresses[name])


@asynccontextmanager
async def listening_gateway(
    *names: str, settings: dict[str, str] | None = None, **given: object
) -> AsyncIterator[ListeningGateway]:
    """Run a gateway with listeners of these protocols and the user alice.

    Args:
        names: of protocols.
        settings: with the prefix of a listener, without `listener.name.`.
        given: fields of the configuration.
    """
    server_pair = certificate("server", is_server=True)
    values: dict[str, object] = {
        "listener_addresses": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener_settings": PrefixedSettings(settings or {}),
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl_jaas_config": SecretText(),
        "ssl_keystore_key": SecretText(server_pair.key),
        "ssl_keystore_certificate_chain": server_pair.certificate,
        "ssl_truststore_certificates": authority().certificate,
        **given,
    }
    for name in names:
        if name.startswith("SASL"):
            values["listener_settings"].setdefault(  # type: ignore[attr-defined]
                f"{name.lower()}.plain.sasl.jaas.config", JAAS
            )
    config = GatewayConfig(group_initial_rebalance_delay_ms=0, **values)  # type: ignore[arg-type]
    async with running_gateway(config) as gateway:
        services = gateway.services
        credential = make_credential(SCRAM, PASSWORD, b"salt", 4096)
        await services.users.alter({("alice", SCRAM.sasl_name): credential}.items())
        mechanisms = Mechanisms(services.entropy, services.users)
        endpoints = [make_endpoint(config, plan, mechanisms) for plan in plans_of(config)]
        server = GatewayServer(services)
        bound = await server.start_endpoints(endpoints)
        try:
            yield ListeningGateway(gateway, server, dict(zip(names, bound, strict=True)))
        finally:
            await server.stop(grace_ms=0)

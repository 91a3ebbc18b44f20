"""A gateway with access rules, and clients that are its users without having logged in."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from kledger.gateway.config import GatewayConfig
from kledger.security.acl_state import AclFilter, AclRule
from kledger.security.authorizer import STANDARD_AUTHORIZER, Authorizer
from kledger.security.principal import Principal
from tests.gateway.running import RunningGateway, running_gateway, until
from tests.gateway.wire_client import WireClient

ROOT = "root"
"""The super user."""


@asynccontextmanager
async def authorizing_gateway(
    rules: Iterable[AclRule] = (), config: GatewayConfig | None = None
) -> AsyncIterator[RunningGateway]:
    """Run a gateway with an authorizer and these rules."""
    config = config or GatewayConfig(group_initial_rebalance_delay_ms=0)
    config.authorizer_class_name = STANDARD_AUTHORIZER
    config.super_users = f"User:{ROOT}"
    async with running_gateway(config) as gateway:
        await authorizer_of(gateway).create(rules)
        yield gateway


def authorizer_of(gateway: RunningGateway) -> Authorizer:
    """Return the authorizer of a gateway that has one."""
    authorizer = gateway.services.authorizer
    assert authorizer is not None
    return authorizer


async def forget_rules(gateway: RunningGateway) -> None:
    """Delete every rule."""
    await authorizer_of(gateway).delete([AclFilter()])


@asynccontextmanager
async def client_of(gateway: RunningGateway, name: str) -> AsyncIterator[WireClient]:
    """Connect as a user."""
    async with gateway.client() as client:
        port = client.writer.get_extra_info("sockname")[1]
        await until(lambda: port in {one.peer.port for one in gateway.server.connections})
        for connection in gateway.server.connections:
            if connection.peer.port == port:
                connection.peer.principal = Principal(name)
        yield client

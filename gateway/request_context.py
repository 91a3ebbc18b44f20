"""RequestContext: what a handler knows besides the request itself.

Rule: a handler gets one for each request and keeps none. Whatever a handler does for a client, it
asks for here first; `gateway.api_rights` lists what the handler of each key asks for.
Must not know: sockets, frames, response order.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kledger.gateway.api_errors import ApiError
from kledger.gateway.api_rights import REFUSALS
from kledger.gateway.brokers import AdvertisedAddress
from kledger.gateway.metadata.authorized_operations import ALL_OPERATIONS
from kledger.gateway.peer import Peer
from kledger.gateway.services import Services
from kledger.gateway.telemetry.telemetry_state import TelemetryClient
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.security.acl_state import CLUSTER_NAME, AclRule, Operation, ResourceType
from kledger.security.principal import ANONYMOUS
from kledger.topics.topic_names import resolve_name

if TYPE_CHECKING:
    from kledger.gateway.config import GatewayConfig


def plain_listener(config: "GatewayConfig") -> AdvertisedAddress:
    """Return the listener of `server.kafka`."""
    return AdvertisedAddress("PLAINTEXT", config.advertised_host, config.advertised_port)


@dataclass(slots=True)
class RequestContext:
    """The server, the client and the connection of one request."""

    services: Services
    version: int
    """The API version of the request and of its response."""
    client_id: str | None
    connection_id: int
    peer: Peer
    wait_ms: int = 0
    """How long the client must wait behind the response; set by the handler."""

    @property
    def advertised(self) -> AdvertisedAddress:
        """What this client connects to, by the listener that its request came in on."""
        return self.peer.listener or plain_listener(self.services.config)

    @property
    def broker_ids(self) -> list[int]:
        """The ids of the brokers that this client can reach."""
        return [each.broker_id for each in self.services.brokers.all(self.advertised)]

    @property
    def telemetry_client(self) -> TelemetryClient:
        """The client, as `ClientTelemetry` keeps it."""
        return TelemetryClient(
            client_id=self.client_id,
            software_name=self.peer.software_name,
            software_version=self.peer.software_version,
            address=self.peer.host,
            port=self.peer.port,
        )

    # What the client may do. Names of topics may have any spelling.

    def authorize(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        is_audited: bool = True,
    ) -> bool:
        """Return whether the client may perform an operation on a resource.

        Args:
            operation: one that resources of the type have.
            resource_type: of the resource.
            name: of the resource; that of the cluster may be left out.
            is_audited: a refusal is logged. Not for what a listing leaves out, nor for the first
                of two rights that each are enough.
        """
        services = self.services
        return services.authorizer is None or is_authorized(
            services,
            self.peer,
            operation,
            resource_type,
            resolve_name(name) if resource_type is ResourceType.TOPIC else name,
            is_audited=is_audited,
        )

    def refusal(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> ErrorCode:
        """Return the code with which the client is refused, or NONE if it may do it."""
        if self.authorize(operation, resource_type, name):
            return ErrorCode.NONE
        return REFUSALS[resource_type]

    def check(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Refuse what the client may not do.

        Raises:
            ApiError: with the code of the refusal.
        """
        if refused := self.refusal(operation, resource_type, name):
            raise ApiError(refused, "Authorization failed.")

    def authorize_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the client may perform an operation on some resource of a type."""
        authorizer, peer = self.services.authorizer, self.peer
        return authorizer is None or authorizer.authorize_any(
            peer.principal, peer.host, operation, resource_type
        )

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of what the client may do with a resource (KIP-430)."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return ALL_OPERATIONS[resource_type]
        return authorizer.authorized_operations(
            self.peer.principal,
            self.peer.host,
            resource_type,
            resolve_name(name) if resource_type is ResourceType.TOPIC else name,
        )

    def audit(self, event: str, **details: str | int) -> None:
        """Log what this client changed; nothing of a server without users and rules."""
        peer = self.peer
        if self.services.authorizer is not None or peer.principal != ANONYMOUS:
            self.services.audit.changed(event, peer.principal, peer.host, **details)

    def audit_rule(self, event: str, rule: AclRule) -> None:
        """Log a change of the access rules by this client."""
        pattern = rule.pattern
        self.audit(
            event,
            permission=rule.permission.name,
            operation=rule.operation.name,
            resource=f"{pattern.resource_type.name}:{pattern.pattern_type.name}:{pattern.name}",
            rule_principal=rule.principal,
            rule_host=rule.host,
        )

    def visible_cluster_operations(self) -> int:
        """Return the bit field of the cluster; 0 for a client that may not describe it."""
        if not self.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
            return 0
        return self.authorized_operations(ResourceType.CLUSTER)


def is_authorized(
    services: Services,
    peer: Peer,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    is_audited: bool = True,
) -> bool:
    """Return whether a client may perform an operation; `RequestContext.authorize` without one.

    The name of a topic must be resolved.
    """
    authorizer = services.authorizer
    if authorizer is None or authorizer.authorize(
        peer.principal, peer.host, operation, resource_type, name
    ):
        return True
    if is_audited:
        services.audit.refused(peer.principal, peer.host, operation, resource_type, name)
    return False

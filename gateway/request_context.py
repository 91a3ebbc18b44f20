"""RequestContext: what a handler knows besides the request itself.

Rule: a handler gets one for each request and keeps none.
Must not know: sockets, frames, response order.
"""

from dataclasses import dataclass

from kledger.gateway.services import Services
from kledger.gateway.telemetry.telemetry_state import TelemetryClient
from kledger.security.principal import ANONYMOUS, Principal

UNKNOWN_SOFTWARE = "unknown"


@dataclass(slots=True)
class Peer:
    """The client at the other end of a connection; ApiVersions names its software."""

    host: str
    port: int = 0
    principal: Principal = ANONYMOUS
    software_name: str = UNKNOWN_SOFTWARE
    software_version: str = UNKNOWN_SOFTWARE


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
    def telemetry_client(self) -> TelemetryClient:
        """The client, as `ClientTelemetry` keeps it."""
        return TelemetryClient(
            client_id=self.client_id,
            software_name=self.peer.software_name,
            software_version=self.peer.software_version,
            address=self.peer.host,
            port=self.peer.port,
        )

"""RequestContext: what a handler knows besides the request itself.

Rule: a handler gets one per request and keeps none.
Must not know: sockets, frames, response order.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kledger.gateway.services import Services


UNKNOWN_SOFTWARE = "unknown"


@dataclass(slots=True)
class Peer:
    """Who is at the other end of a connection; what its software is called, it says itself."""

    host: str
    port: int = 0
    software_name: str = UNKNOWN_SOFTWARE
    software_version: str = UNKNOWN_SOFTWARE


@dataclass(slots=True)
class RequestContext:
    """One request's surroundings."""

    services: "Services"
    version: int
    """The API version of the request and of its response."""
    client_id: str | None
    connection_id: int
    peer: Peer
    wait_ms: int = 0
    """For how long the client is to wait behind the answer; set by the handler."""

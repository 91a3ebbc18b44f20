"""RequestContext: what a handler knows besides the request itself.

Rule: a handler gets one per request and keeps none.
Must not know: sockets, frames, response order.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.services import Services


@dataclass(slots=True)
class RequestContext:
    """One request's surroundings."""

    services: "Services"
    version: int
    """The API version of the request and of its response."""
    client_id: str | None
    connection_id: int
    peer_host: str

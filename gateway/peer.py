"""Peer: the client at the other end of a connection.

Must not know: services, requests, sockets.
"""

import re
from dataclasses import dataclass, field

from kledger.gateway.brokers import AdvertisedAddress
from kledger.security.principal import ANONYMOUS, Principal

UNKNOWN_SOFTWARE = "unknown"
_LIBRDKAFKA = re.compile("rdkafka|^confluent-kafka|^kcat$")


@dataclass(slots=True)
class Peer:
    """The client at the other end of a connection; ApiVersions names its software.

    Attributes:
        listener: that its connection came in on; None: the one of `server.kafka`.
        is_token: whether it logged in with a delegation token.
        known_moves: by key type and coordinator, the last move that FindCoordinator has returned.
    """

    host: str
    port: int = 0
    principal: Principal = ANONYMOUS
    software_name: str = UNKNOWN_SOFTWARE
    software_version: str = UNKNOWN_SOFTWARE
    is_token: bool = False
    listener: AdvertisedAddress | None = None
    known_moves: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def is_librdkafka(self) -> bool:
        """Whether it is librdkafka, or a program or binding of another language over it."""
        return _LIBRDKAFKA.search(self.software_name) is not None

    @property
    def may_use_token_requests(self) -> bool:
        """Whether it may create and see delegation tokens: not by a token itself (KIP-48)."""
        return self.principal != ANONYMOUS and not self.is_token

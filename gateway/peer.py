"""Peer: the client at the other end of a connection.

Must not know: services, requests, sockets.
"""

import re
from dataclasses import dataclass, field

from kledger.gateway.brokers import AdvertisedAddress
from kledger.security.principal import ANONYMOUS, Principal

UNKNOWN_SOFTWARE = "unknown"
_LIBRDKAFKA = re.compile("rdkafka|^confluent-kafka|^kcat$")
_LIBRDKAFKA_VERSION = re.compile(r"(?:^|rdkafka-)v?(\d+)\.(\d+)")
_BY_ID_SINCE = 2, 10


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
    def knows_brokers_by_id(self) -> bool:
        """Whether it is librdkafka from 2.10 on, to which two ids are two brokers.

        To an earlier one, what has the same address is one broker, with the id that was listed
        last; it does not find the leader by the other id, and looks again after five minutes.
        """
        if not self.is_librdkafka:
            return False
        found = _LIBRDKAFKA_VERSION.findall(self.software_version)
        return bool(found) and tuple(map(int, found[-1])) >= _BY_ID_SINCE

    @property
    def may_use_token_requests(self) -> bool:
        """Whether it may create and see delegation tokens: not by a token itself (KIP-48)."""
        return self.principal != ANONYMOUS and not self.is_token

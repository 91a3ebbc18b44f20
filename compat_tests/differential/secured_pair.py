"""Kledger and Apache Kafka with users: each has an open listener, and one for logins.

Rule: both have the same settings, but for those that a controller needs.
Must not know: what is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple

import pytest

from compat_tests.differential.masks import Masks
from compat_tests.differential.side import Side
from compat_tests.servers import ApacheKafkaServer, KledgerServer
from compat_tests.settings import STANDARD_AUTHORIZER
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest

HEAP: Final = "320m"
SUPER_USER: Final = "root"
PLAIN_LISTENER: Final = "listener.name.sasl_plaintext.plain"
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:{SUPER_USER};User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "auto.create.topics.enable": "false",
}
BOTH_LISTENERS: Final = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"


class SecuredAddresses(NamedTuple):
    """Where a server is: without a login, and with one."""

    open: str
    guarded: str


class SecuredPair(NamedTuple):
    """Both servers, and the versions of each API that both have."""

    kledger: SecuredAddresses
    kafka: SecuredAddresses
    versions: dict[int, range]

    @property
    def servers(self) -> tuple[SecuredAddresses, SecuredAddresses]:
        """Kledger, and the one that it is compared with."""
        return self.kledger, self.kafka


@contextmanager
def secured_pair(
    factory: pytest.TempPathFactory,
    users: Iterable[str],
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SecuredPair]:
    """Start both servers with rules, and wait for their coordinators.

    Args:
        factory: makes their folders.
        users: with PLAIN, whose passwords are their names with "-secret".
        settings: further ones.
    """
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    passwords = " ".join(f'user_{name}="{name}-secret"' for name in users)
    common = SETTINGS | {f"{PLAIN_LISTENER}.sasl.jaas.config": f"{login} {passwords};", **settings}
    kledger = KledgerServer(factory.mktemp("kledger"), durability="os")
    kafka = ApacheKafkaServer(factory.mktemp("kafka"), heap=HEAP)
    addresses = []
    for server in (kledger, kafka):
        server.prepare()
        guarded = f"{server.host}:{server.reserve_port()}"
        listeners = f"PLAINTEXT://{server.bootstrap},SASL_PLAINTEXT://{guarded}"
        server.settings = common | {"listeners": listeners, "advertised.listeners": listeners}
        addresses.append(SecuredAddresses(server.bootstrap, guarded))
    kafka.settings |= {
        "listeners": f"{kafka.settings['listeners']},CONTROLLER://{kafka.controller}",
        "listener.security.protocol.map": f"{BOTH_LISTENERS},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    with kledger, kafka:
        ours, theirs = (_advertised_by(each.open) for each in addresses)
        versions = {
            key: range(
                max(ours[key].start, theirs[key].start), min(ours[key].stop, theirs[key].stop)
            )
            for key in ours.keys() & theirs.keys()
        }
        yield SecuredPair(addresses[0], addresses[1], versions)


def _advertised_by(bootstrap: str) -> dict[int, range]:
    """Wait for the coordinators, and return the versions of a server."""
    side = Side(bootstrap, {}, Masks(0))
    try:
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["first"])
            side.settle("coordinator", request, 6)
        return side.advertised()
    finally:
        side.close()

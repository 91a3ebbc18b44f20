"""Every API that both servers have, at every version: a request in which nothing was filled in."""

from __future__ import annotations

from typing import Final

from compat_tests.differential.connection import message_modules
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest

SAID_ELSEWHERE: Final = {0, 18, 24, 66}
"""Produce has no answer then (acks 0), AddPartitionsToTxn none of Kafka; ApiVersions is below.

ListTransactions gives all that other scripts have left behind, in whatever state they are by now.
"""

LOADED_FIRST: Final = {9, 10, 16, 22}
"""APIs that Kafka answers only when its coordinators are there."""


@script
def requests_with_nothing_in_them(side: Side) -> None:
    # Only this makes Kafka begin with its coordinator of groups.
    finding = FindCoordinatorRequest(coordinator_keys=["g"])
    side.settle("coordinator", finding, max(side.versions(10)))
    for key in side.common_keys():
        if key in SAID_ELSEWHERE:
            continue
        for version in side.versions(key):
            ask = side.settle if key in LOADED_FIRST else side.ask
            ask("nothing", message_modules()[key].REQUEST(), version)


@script
def versions_are_advertised(side: Side) -> None:
    for version in side.versions(18):
        for name in ("differential", "bad name!", ""):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
            side.ask(f"{name!r}", request, version)

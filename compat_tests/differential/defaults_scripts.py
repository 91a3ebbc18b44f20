"""Every API that both servers have, at every version: a request in which nothing was filled in."""

from __future__ import annotations

from typing import Final

from compat_tests.differential.connection import message_modules
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from gateway.wire.messages.k18_api_versions import ApiVersionsRequest

SAID_ELSEWHERE: Final = {0, 18, 24}
"""Produce has no answer then (acks 0), AddPartitionsToTxn none of Kafka; ApiVersions is below."""


@script
def requests_with_nothing_in_them(side: Side) -> None:
    for key in side.common_keys():
        if key in SAID_ELSEWHERE:
            continue
        for version in side.versions(key):
            side.settle("nothing", message_modules()[key].REQUEST(), version)


@script
def versions_are_told(side: Side) -> None:
    for version in side.versions(18):
        for name in ("differential", "bad name!", ""):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
            side.ask(f"{name!r}", request, version)

"""Audit log: one line for each refused request and each change of users or access rules.

Rule: a line is `EVENT name=value …`; texts of clients are quoted and escaped as in JSON and cut, so
that a client cannot forge a line or a field. Refusals of one principal and address are limited in
each second, as a client can cause any number of them; changes are never left out.
Must not know: why something is refused.

    refused principal="User:mallory" address="10.0.0.7" operation=WRITE resource=TOPIC:"orders"
    created rule principal="User:admin" address="10.0.0.1" permission="ALLOW" operation="READ" …
"""

import json
import logging
from typing import TYPE_CHECKING, Final

from kledger.runtime.logs import RateLimitedLog
from kledger.security.principal import Principal

if TYPE_CHECKING:
    from kledger.runtime.clock import Clock
    from kledger.security.acl_state import Operation, ResourceType

logger = logging.getLogger("kledger.audit")

REFUSALS_PER_SECOND: Final = 10
"""Lines about refusals of one principal and address."""
REFUSED_CLIENTS_MAX: Final = 1_000
"""Principals and addresses whose lines are counted; one more lets the oldest begin anew."""
TEXT_SIZE_MAX: Final = 250
"""Characters of a text that a line shows."""


def quoted(text: str) -> str:
    """Return a text of a client as a line shows it: quoted, escaped, in ASCII, and cut."""
    shown = text if len(text) <= TEXT_SIZE_MAX else f"{text[:TEXT_SIZE_MAX]}…"
    return json.dumps(shown)


class AuditLog:
    """The audit lines of one server."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._refusals: dict[tuple[Principal, str], RateLimitedLog] = {}

    def refused(
        self,
        principal: Principal,
        address: str,
        operation: "Operation",
        resource_type: "ResourceType",
        name: str,
    ) -> None:
        """Log that a client may not do what it asked for."""
        key = principal, address
        log = self._refusals.get(key)
        if log is None:
            if len(self._refusals) >= REFUSED_CLIENTS_MAX:
                del self._refusals[next(iter(self._refusals))]
            log = RateLimitedLog(logger, REFUSALS_PER_SECOND, self._clock)
            self._refusals[key] = log
        log.warning(
            "refused principal=%s address=%s operation=%s resource=%s:%s",
            quoted(str(principal)),
            quoted(address),
            operation.name,
            resource_type.name,
            quoted(name),
        )

    def changed(self, event: str, principal: Principal, address: str, **details: str | int) -> None:
        """Log a change that a client made.

        Args:
            event: what was changed, in words of ours.
            principal: of the client.
            address: of the client.
            details: what was changed, by name; texts are quoted.
        """
        shown = " ".join(
            f"{name}={quoted(value) if isinstance(value, str) else value}"
            for name, value in details.items()
        )
        logger.info(
            "%s principal=%s address=%s %s", event, quoted(str(principal)), quoted(address), shown
        )

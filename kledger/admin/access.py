"""AdminAccess: which clients may see the pages of the admin listener.

Rule: the users are those of all listeners, by HTTP Basic; pages need Describe on the cluster by the
same authorizer. Without an authorizer every client may see them, as every Kafka client may describe
the cluster then; but a client with a wrong login is refused, not treated as anonymous.
Must not know: HTTP, the pages.
"""

from enum import Enum
from typing import Protocol

from kledger.security.acl_state import CLUSTER_NAME, Operation, ResourceType
from kledger.security.audit import AuditLog
from kledger.security.authorizer import Authorizer
from kledger.security.principal import ANONYMOUS
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed


class HeaderCheck(Protocol):
    """Checks the header `Authorization`."""

    async def login(self, header: str, address: str) -> Authenticated:
        """Return the principal of a login. Raises AuthenticationFailed."""
        ...


class Admission(Enum):
    """What a request may do."""

    ALLOWED = 200
    """See the page."""
    UNKNOWN_CLIENT = 401
    """Log in: there is no login, or a wrong one."""
    REFUSED = 403
    """Nothing: the user may not describe the cluster."""


class AdminAccess:
    """Decides on requests."""

    def __init__(self, logins: HeaderCheck, authorizer: Authorizer | None, audit: AuditLog) -> None:
        """Args: authorizer: None: every client may see everything."""
        self._logins = logins
        self._authorizer = authorizer
        self._audit = audit

    async def admit(
        self, header: str | None, address: str, *, is_audited: bool = True
    ) -> Admission:
        """Decide on a request.

        Args:
            header: `Authorization`; None: there is none.
            address: of the client.
            is_audited: a user that may not describe the cluster is logged.
        """
        principal = ANONYMOUS
        if header is not None:
            try:
                principal = (await self._logins.login(header, address)).principal
            except AuthenticationFailed:
                return Admission.UNKNOWN_CLIENT
        right = Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        if self._authorizer is None or self._authorizer.authorize(principal, address, *right):
            return Admission.ALLOWED
        if is_audited:
            self._audit.refused(principal, address, *right)
        return Admission.UNKNOWN_CLIENT if principal == ANONYMOUS else Admission.REFUSED

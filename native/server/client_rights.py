"""ClientRights: what one remote client may do, by the rules of the authorizer.

Rule: a refusal is NotAllowed and one line of the audit log. A link depends on rights as long as it
is open: in the step in which a rule takes one of them away, the link ends.
Must not know: calls, how the client logged in.
"""

from typing import NamedTuple

from kledger.native.broker import OnEnded
from kledger.native.errors import NotAllowed
from kledger.security.acl_state import Operation, ResourceType
from kledger.security.audit import AuditLog
from kledger.security.authorizer import Authorizer
from kledger.security.principal import Principal
from kledger.topics.topic_names import resolve_name


class NeededRight(NamedTuple):
    """An operation on one resource."""

    operation: Operation
    resource_type: ResourceType
    name: str


class ClientRights:
    """The rights of one client for one call or link."""

    def __init__(
        self, authorizer: Authorizer, audit: AuditLog, principal: Principal, host: str
    ) -> None:
        self._authorizer = authorizer
        self._audit = audit
        self._principal = principal
        self._host = host
        self._needed: tuple[NeededRight, ...] = ()
        self._on_ended: OnEnded | None = None

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may do something; nothing is logged."""
        return self._authorizer.authorize(
            self._principal, self._host, operation, resource_type, _own_name(resource_type, name)
        )

    def demand(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Refuse what the client may not do.

        Raises:
            NotAllowed: it may not.
        """
        if not self.allows(operation, resource_type, name):
            own_name = _own_name(resource_type, name)
            self._audit.refused(self._principal, self._host, operation, resource_type, own_name)
            raise NotAllowed(
                f"{self._principal} is not allowed to {operation.name} {resource_type.name} {name}"
            )

    def changed(self, event: str, **details: str | int) -> None:
        """Write what the client has changed into the audit log."""
        self._audit.changed(event, self._principal, self._host, **details)

    def end_without(self, needed: tuple[NeededRight, ...], on_ended: OnEnded) -> None:
        """End a link when a right is taken away, and refuse one that has lost it already.

        Raises:
            NotAllowed: a right is missing now.
        """
        for each in needed:
            self.demand(*each)
        self._needed, self._on_ended = needed, on_ended
        self._authorizer.changed.add(self._rules_changed)

    def close(self) -> None:
        """Forget the link. May be repeated."""
        self._authorizer.changed.remove(self._rules_changed)
        self._on_ended = None

    def _rules_changed(self) -> None:
        on_ended = self._on_ended
        if on_ended is None or all(self.allows(*each) for each in self._needed):
            return
        self.close()
        try:
            for each in self._needed:
                self.demand(*each)
        except NotAllowed as error:
            on_ended(error)


def _own_name(resource_type: ResourceType, name: str) -> str:
    """Return the name by which rules know a resource: topics have a short and a long one."""
    return resolve_name(name) if resource_type is ResourceType.TOPIC else name

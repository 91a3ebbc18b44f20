"""Authorizer: whether a principal may perform an operation on a resource.

Rule: super users may do everything, other brokers of the cluster what only brokers do; for all
others the rules of `acl_state` decide. Rules are durable rows, and hold as soon as a change is
answered. `version` rises with every change: what was decided before it is void, here and in every
cache that is keyed by it.
Must not know: API keys, connections, what a refusal is answered with.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kledger.ledger import TableStore
from kledger.ledger.record_table import RecordChange, RecordTable, submit_together
from kledger.runtime.listeners import Listeners
from kledger.security.acl_rows import ACL_ROWS, RuleCreation
from kledger.security.acl_state import (
    ANY_NAME_PROBE,
    OPERATIONS,
    AclFilter,
    AclRule,
    AclState,
    Decision,
    Operation,
    ResourceType,
)
from kledger.security.principal import BROKER, Principal, parse_principal

if TYPE_CHECKING:
    from kledger.runtime.clock import Clock

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The class name in Kafka's settings that switches rules on."""
RULES_MAX: Final = 100_000
DECISIONS_MAX: Final = 65_536
"""Decisions that are cached, some hundred bytes each; one more clears the cache."""
_NOTHING: Final[Mapping[str, bool]] = {}


class TooManyRules(Exception):
    """Nothing was created: there would be more than `RULES_MAX` rules."""


def parse_super_users(text: str) -> frozenset[Principal]:
    """Return the principals of the setting super.users, separated by semicolons.

    Raises:
        ValueError: one of them is no principal.
    """
    return frozenset(parse_principal(each.strip()) for each in text.split(";") if each.strip())


class Authorizer:
    """The access rules of one store.

    Attributes:
        version: of the rules; a higher one after every change.
        changed: listeners, called when a change holds; one that is called must compare what it
            knows, as also a change that failed ends with a call.
    """

    def __init__(
        self,
        tables: TableStore,
        clock: "Clock",
        *,
        super_users: Iterable[Principal] = (),
        allows_without_rules: bool = False,
    ) -> None:
        """Load the rules.

        Args:
            tables: keep the rules.
            clock: for the time of their creation.
            super_users: principals that may do everything.
            allows_without_rules: every user may use a resource that no rule names.

        Raises:
            UnreadableRow: a stored rule cannot be read.
        """
        self.version = 0
        self.changed = Listeners(tables.containment)
        self._clock = clock
        self._super_users = frozenset(super_users)
        self._allows_without_rules = allows_without_rules
        self._state = AclState()
        self._decisions: list[list[dict[tuple[Principal, str], dict[str, bool]]]] = [
            [{} for _ in ResourceType] for _ in Operation
        ]
        """By operation, type of resource, user with address, and name."""
        self._decision_count = 0
        self._changing = tables.change_lock()
        self._is_changing = False
        self._table = RecordTable(tables, ACL_ROWS, self._replayed)
        self._table.load()

    def __len__(self) -> int:
        return len(self._state)

    # Decisions.

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return whether a principal may perform an operation on one resource.

        Args:
            principal: the user of the connection.
            host: the client's address as text.
            operation: one that resources of the type have.
            resource_type: of the resource.
            name: of the resource; of a topic, its resolved name.
        """
        if principal is BROKER:  # what is kept below would hold for a user of that name, too
            return operation is Operation.CLUSTER_ACTION
        # Enumerations are indexes, as their own hash is slow.
        of_users, user = self._decisions[operation][resource_type], (principal, host)
        decided = of_users.get(user, _NOTHING)
        if name in decided:
            return decided[name]
        if self._decision_count >= DECISIONS_MAX:
            self._forget_decisions()
        is_allowed = self._decide(principal, host, operation, resource_type, name)
        of_users.setdefault(user, {})[name] = is_allowed
        self._decision_count += 1
        return is_allowed

    def decided(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> Mapping[str, bool]:
        """Return what `authorize` has returned under these rules, by name; not all of it is kept.

        For requests that name many resources. It holds until the event loop runs again. The
        arguments are those of `authorize`.
        """
        return self._decisions[operation][resource_type].get((principal, host), _NOTHING)

    def _forget_decisions(self) -> None:
        self._decision_count = 0
        for of_operation in self._decisions:
            for decisions in of_operation:
                decisions.clear()

    def _decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        decision = self._state.decide(str(principal), host, operation, resource_type, name)
        if decision is Decision.NO_RULES:
            return self._allows_without_rules
        return decision is Decision.ALLOWED

    def authorize_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether a principal may perform an operation on some resource of a type."""
        return self.authorize(
            principal, host, operation, resource_type, ANY_NAME_PROBE
        ) or self._state.allows_any(str(principal), host, operation, resource_type)

    def authorized_operations(
        self, principal: Principal, host: str, resource_type: ResourceType, name: str
    ) -> int:
        """Return the bit field of what a principal may do with a resource (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.authorize(principal, host, operation, resource_type, name)
        )

    # Rules.

    def find(self, asked: AclFilter) -> list[AclRule]:
        """Return the rules that match a filter."""
        return self._state.find(asked)

    async def create(self, rules: Iterable[AclRule]) -> None:
        """Create rules, all or none; those that exist stay as they are.

        Args:
            rules: each passed `check_rule`.

        Raises:
            TooManyRules: nothing has changed.
            LedgerError: nothing has changed.
        """
        async with self._changing:
            new = [rule for rule in dict.fromkeys(rules) if rule not in self._state]
            if len(self._state) + len(new) > RULES_MAX:
                raise TooManyRules(
                    f"expected at most {RULES_MAX} access rules, got {len(new)} new ones beside "
                    f"{len(self._state)}"
                )
            creation = RuleCreation(self._clock.now_ms())
            await self._write([self._table.change(rule, creation) for rule in new])

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclRule]]:
        """Delete the rules that match one of the filters; return them for each filter.

        Raises:
            LedgerError: nothing has changed.
        """
        async with self._changing:
            found = [self.find(each) for each in filters]
            deleted = dict.fromkeys(rule for rules in found for rule in rules)
            await self._write([self._table.change(rule, None) for rule in deleted])
        return found

    async def _write(self, changes: Sequence[RecordChange]) -> None:
        if not changes:
            return
        self._is_changing = True
        try:
            error = await submit_together(changes)
        finally:
            self._is_changing = False
            self.changed.notify()
        if error is not None:
            raise error

    def _replayed(self, rule: AclRule) -> None:
        """Let a rule hold, or be gone, and void what was decided."""
        if self._table.get(rule) is None:
            self._state.remove(rule)
        else:
            self._state.add(rule)
        self.version += 1
        if self._decision_count:
            self._forget_decisions()
        if not self._is_changing:  # another broker has changed it
            self.changed.notify()

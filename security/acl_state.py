"""Access rules (ACLs), and what they decide, by the rules of Apache Kafka's StandardAuthorizer.

Rule: a rule allows or denies a principal, from a host, an operation on the resources that its
pattern names. Any rule that denies wins, then any that allows; without either, the result says only
whether a rule names the resource. A rule that allows implies Describe and DescribeConfigs, one that
denies implies nothing. Rules are indexed by the resource's type, name and principal, so that rules
of other resources or users do not slow down a decision.
Must not know: where rules are stored, super users, what a client asked for.
"""

from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

ANY_HOST: Final = "*"
ANY_NAME: Final = "*"
"""As the name of a literal pattern: every resource of the type."""
EVERYONE: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type Cluster."""
ANY_NAME_PROBE: Final = "hardcode"
"""The name that Kafka asks for first when a right on any resource is enough."""


class ResourceType(IntEnum):
    """Kinds of resources, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern's name means resources, with Kafka's codes; rules have the last two."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In a filter: every rule that would apply to the resource of that name."""
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done with a resource, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule denies or allows, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.DESCRIBE,
        Operation.WRITE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that a resource of each type has, as `authorized_operations` shows them."""

_IMPLYING: Final[dict[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""The operations whose permission is one for the key, too (Kafka: AclEntry)."""


class ResourcePattern(NamedTuple):
    """The resources that a rule is about."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def matches(self, resource_type: ResourceType, name: str) -> bool:
        """Whether the resource is one of them."""
        if resource_type is not self.resource_type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in {name, ANY_NAME}


class AclRule(NamedTuple):
    """One rule: whether a principal may perform an operation from a host."""

    pattern: ResourcePattern
    principal: str
    """`TYPE:NAME`; `User:*` is every user."""
    host: str
    """An address as text, or `*`."""
    operation: Operation
    permission: Permission

    def concerns(self, host: str, operation: Operation) -> bool:
        """Whether the rule is about the operation from the host; its principal is not compared."""
        if self.host not in {ANY_HOST, host}:
            return False
        if self.operation in {Operation.ALL, operation}:
            return True
        if self.permission is Permission.DENY:
            return False
        return self.operation in _IMPLYING.get(operation, ())


class AclFilter(NamedTuple):
    """Which rules a client asks for; None, `ANY` and `MATCH` leave a field open."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, rule: AclRule) -> bool:
        """Whether the rule is one of those asked for."""
        return (
            self._matches_pattern(rule.pattern)
            and self.principal in {None, rule.principal}
            and self.host in {None, rule.host}
            and self.operation in {Operation.ANY, rule.operation}
            and self.permission in {Permission.ANY, rule.permission}
        )

    def _matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Three cases: a name is not asked for; the exact name is; what applies to the name is."""
        if self.resource_type not in {ResourceType.ANY, pattern.resource_type}:
            return False
        open_types = {PatternType.ANY, PatternType.MATCH}
        if self.pattern_type not in open_types and self.pattern_type is not pattern.pattern_type:
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        return pattern.matches(pattern.resource_type, self.name)


class Decision(Enum):
    """What the rules say about one operation."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """By a rule, or because rules name the resource and none allows."""
    NO_RULES = "no rules"
    """No rule names the resource; the setting allow.everyone.if.no.acl.found decides."""


_RulesByPrincipal: TypeAlias = dict[str, dict[AclRule, None]]


class _TypeIndex:
    """The rules of one type of resource."""

    __slots__ = ("_lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _RulesByPrincipal] = {}
        self.prefixed: dict[str, _RulesByPrincipal] = {}
        self._lengths: dict[int, int] = {}
        """How many prefixes have each length."""

    def add(self, rule: AclRule) -> None:
        name = rule.pattern.name
        is_prefix = rule.pattern.pattern_type is PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        if is_prefix and name not in patterns:
            self._lengths[len(name)] = self._lengths.get(len(name), 0) + 1
        patterns.setdefault(name, {}).setdefault(rule.principal, {})[rule] = None

    def remove(self, rule: AclRule) -> None:
        name = rule.pattern.name
        is_prefix = rule.pattern.pattern_type is PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        by_principal = patterns[name]
        del by_principal[rule.principal][rule]
        if not by_principal[rule.principal]:
            del by_principal[rule.principal]
        if by_principal:
            return
        del patterns[name]
        if is_prefix:
            self._lengths[len(name)] -= 1
            if not self._lengths[len(name)]:
                del self._lengths[len(name)]

    def naming(self, name: str) -> Iterator[_RulesByPrincipal]:
        """Iterate over the rules of every pattern that names the resource."""
        exact = self.literal.get(name)
        if exact is not None:
            yield exact
        if name != ANY_NAME and (of_all := self.literal.get(ANY_NAME)) is not None:
            yield of_all
        for length in self._lengths:
            if length <= len(name) and (found := self.prefixed.get(name[:length])) is not None:
                yield found


class AclState:
    """All rules, and an index of them."""

    __slots__ = ("_by_type", "_rules")

    def __init__(self, rules: Iterable[AclRule] = ()) -> None:
        self._rules: dict[AclRule, None] = {}
        self._by_type: dict[ResourceType, _TypeIndex] = {}
        for rule in rules:
            self.add(rule)

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, rule: AclRule) -> bool:
        return rule in self._rules

    def __iter__(self) -> Iterator[AclRule]:
        return iter(self._rules)

    def add(self, rule: AclRule) -> None:
        """Add a rule; nothing if it is there."""
        if rule not in self._rules:
            self._rules[rule] = None
            self._by_type.setdefault(rule.pattern.resource_type, _TypeIndex()).add(rule)

    def remove(self, rule: AclRule) -> None:
        """Remove a rule; nothing if it is not there."""
        if rule in self._rules:
            del self._rules[rule]
            self._by_type[rule.pattern.resource_type].remove(rule)

    def find(self, asked: AclFilter) -> list[AclRule]:
        """Return the rules that match a filter."""
        return [rule for rule in self._rules if asked.matches(rule)]

    def decide(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision:
        """Decide whether a principal may perform an operation on one resource.

        Args:
            principal: `TYPE:NAME`.
            host: the client's address as text.
            operation: one that resources of the type have.
            resource_type: of the resource.
            name: of the resource.

        Source: Kafka's StandardAuthorizerData.
        """
        index = self._by_type.get(resource_type)
        decision = Decision.NO_RULES
        for by_principal in () if index is None else index.naming(name):
            if decision is Decision.NO_RULES:
                decision = Decision.DENIED
            for each in (principal, EVERYONE):
                for rule in by_principal.get(each, ()):
                    if rule.concerns(host, operation):
                        if rule.permission is Permission.DENY:
                            return Decision.DENIED
                        decision = Decision.ALLOWED
        return decision

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether some name of a type exists on which a rule allows the operation and none denies.

        Kafka has no implications here: only rules of the operation itself and of All count.

        Source: Kafka's Authorizer.authorizeByResourceType (KIP-679).
        """
        index = self._by_type.get(resource_type)
        if index is None:
            return False

        def named(patterns: dict[str, _RulesByPrincipal], permission: Permission) -> Iterator[str]:
            for name, by_principal in patterns.items():
                rules = (*by_principal.get(principal, ()), *by_principal.get(EVERYONE, ()))
                if any(
                    rule.permission is permission
                    and rule.host in {ANY_HOST, host}
                    and rule.operation in {Operation.ALL, operation}
                    for rule in rules
                ):
                    yield name

        denied = set(named(index.literal, Permission.DENY))
        if ANY_NAME in denied:
            return False
        denied_prefixes = set(named(index.prefixed, Permission.DENY))

        def is_denied_by_prefix(name: str) -> bool:
            return any(name.startswith(prefix) for prefix in denied_prefixes)

        for name in named(index.literal, Permission.ALLOW):
            if name == ANY_NAME or not (name in denied or is_denied_by_prefix(name)):
                return True
        return not all(map(is_denied_by_prefix, named(index.prefixed, Permission.ALLOW)))


NAME_SIZE_MAX: Final = 4_096
"""Characters of the name, the principal and the host of a rule."""
_OTHER_SPELLINGS: Final = ("persistent:", "public/default/")


class InvalidRule(Exception):
    """A rule that cannot be created; the message says why."""


def check_rule(rule: AclRule) -> None:
    """Check a rule that a client wants to create.

    Raises:
        InvalidRule: the message names the field, what was expected and what was there.
    """
    pattern, principal = rule.pattern, rule.principal
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRule(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        raise InvalidRule("Invalid empty resource name")
    for field, text in (("name", pattern.name), ("principal", principal), ("host", rule.host)):
        if len(text) > NAME_SIZE_MAX:
            raise InvalidRule(
                f"{field}: expected at most {NAME_SIZE_MAX} characters, got {len(text)}"
            )
    if ":" not in principal:
        raise InvalidRule(
            f"Could not parse principal from `{principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    if pattern.resource_type is ResourceType.TOPIC and pattern.name.startswith(_OTHER_SPELLINGS):
        # It would bind no topic, and one that denies would seem to.
        raise InvalidRule(
            f"name: expected topic or tenant/namespace/topic, got {pattern.name!r}, which is "
            "another spelling of it"
        )

"""Rules in words, and rules and questions at random, for tests of access rules."""

from random import Random

from kledger.security.acl_state import (
    OPERATIONS,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

NAMES = ("a", "ab", "abc", "b", "ba", "*", "hardcode")
PRINCIPALS = ("User:alice", "User:bob", "User:*")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")

Question = tuple[str, str, Operation, ResourceType, str]
"""Principal, host, operation, type and name of the resource."""


def rule(
    permission: str,
    operation: str,
    resource: str,
    *,
    principal: str = "User:alice",
    host: str = "*",
) -> AclRule:
    """Return a rule; a resource is `TOPIC:orders`, or `TOPIC:orders...` for a prefix."""
    kind, _, name = resource.partition(":")
    is_prefix = name.endswith("...")
    pattern = ResourcePattern(
        ResourceType[kind],
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        name.removesuffix("..."),
    )
    return AclRule(pattern, principal, host, Operation[operation], Permission[permission])


def allow(operation: str, resource: str, principal: str = "User:alice") -> AclRule:
    """Return a rule that allows."""
    return rule("ALLOW", operation, resource, principal=principal)


def deny(operation: str, resource: str, principal: str = "User:alice") -> AclRule:
    """Return a rule that denies."""
    return rule("DENY", operation, resource, principal=principal)


def random_rules(random: Random) -> list[AclRule]:
    """Return up to 14 rules of few names, so that several of them concern one question."""
    kinds = (ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP)
    return [
        AclRule(
            ResourcePattern(
                kind := random.choice(kinds),
                random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
                random.choice(NAMES),
            ),
            random.choice(PRINCIPALS),
            random.choice(HOSTS),
            random.choice((*OPERATIONS[kind], Operation.ALL)),
            random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
        )
        for _ in range(random.randrange(15))
    ]


def random_question(random: Random) -> Question:
    """Return a question about one of those resources."""
    kind = random.choice((ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP))
    return (
        random.choice(PRINCIPALS[:2]),
        random.choice(HOSTS[1:]),
        random.choice(OPERATIONS[kind]),
        kind,
        random.choice((*NAMES, "abcd", "c")),
    )

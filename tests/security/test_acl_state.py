"""Access rules, held against an evaluator that tries every rule."""

from random import Random

import pytest

from kledger.security.acl_state import (
    CLUSTER_NAME,
    NAME_SIZE_MAX,
    AclFilter,
    AclRule,
    AclState,
    Decision,
    InvalidRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_rule,
)
from tests.security.acl_words import (
    Question,
    allow,
    deny,
    random_question,
    random_rules,
    rule,
)

DESCRIBE_IMPLIED = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


def naive_decision(rules: list[AclRule], question: Question) -> Decision:
    """Decide as the words of Kafka's documentation say, without any index."""
    principal, host, operation, kind, name = question
    named = [
        each
        for each in rules
        if each.pattern.resource_type == kind
        and (
            name.startswith(each.pattern.name)
            if each.pattern.pattern_type == PatternType.PREFIXED
            else each.pattern.name in (name, "*")
        )
    ]
    if not named:
        return Decision.NO_RULES
    own = [
        each
        for each in named
        if each.principal in (principal, "User:*") and each.host in (host, "*")
    ]
    denying = [each for each in own if each.permission == Permission.DENY]
    if any(each.operation in (operation, Operation.ALL) for each in denying):
        return Decision.DENIED
    enough = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        enough |= DESCRIBE_IMPLIED
    if operation == Operation.DESCRIBE_CONFIGS:
        enough.add(Operation.ALTER_CONFIGS)
    allowing = [each for each in own if each.permission == Permission.ALLOW]
    return Decision.ALLOWED if any(e.operation in enough for e in allowing) else Decision.DENIED


def naive_any(rules: list[AclRule], question: Question) -> bool:
    """Look for a pattern that allows and that no pattern which denies covers."""
    principal, host, operation, kind, _ = question
    own = [
        each
        for each in rules
        if each.pattern.resource_type == kind
        and each.principal in (principal, "User:*")
        and each.host in (host, "*")
        and each.operation in (operation, Operation.ALL)
    ]
    denying = [each.pattern for each in own if each.permission == Permission.DENY]
    literal = PatternType.LITERAL
    if any(each.pattern_type == literal and each.name == "*" for each in denying):
        return False
    for pattern in (each.pattern for each in own if each.permission == Permission.ALLOW):
        if pattern.pattern_type == literal and pattern.name == "*":
            return True
        covered = any(
            pattern.name.startswith(each.name)
            if each.pattern_type == PatternType.PREFIXED
            else each == pattern
            for each in denying
        )
        if not covered:
            return True
    return False


def check_random_rules(seed: int, count: int) -> dict[Decision, int]:
    """Compare the decisions on sets of rules, while rules come and go."""
    random, seen = Random(seed), dict.fromkeys(Decision, 0)
    for number in range(count):
        rules = random_rules(random)
        state = AclState(rules)
        for each in random.sample(rules, random.randrange(len(rules) // 2 + 1)):
            state.remove(each)
        left = list(state)
        for _ in range(3):
            question = random_question(random)
            decision = state.decide(*question)
            assert naive_decision(left, question) is decision, (seed, number, question)
            seen[decision] += 1
            some = naive_any(left, question)
            assert some is state.allows_any(*question[:4]), (seed, number, question)
    return seen


def test_decisions_are_those_of_the_naive_evaluator() -> None:
    seen = check_random_rules(1, 3_000)
    assert all(count > 500 for count in seen.values()), seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_decisions_on_100_000_sets_of_rules(seed: int) -> None:
    check_random_rules(100 + seed, 10_000)


def decide(state: AclState, operation: str, name: str = "orders") -> Decision:
    return state.decide("User:alice", "::1", Operation[operation], ResourceType.TOPIC, name)


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "ALL"])
def test_what_allows_to_use_a_topic_allows_to_describe_it(operation: str) -> None:
    state = AclState([allow(operation, "TOPIC:orders")])
    assert Decision.ALLOWED is decide(state, "DESCRIBE")


def test_what_denies_implies_nothing() -> None:
    """A rule that denied Read hid the topic from those who may describe it."""
    state = AclState([allow("ALL", "TOPIC:orders"), deny("READ", "TOPIC:orders")])
    assert Decision.DENIED is decide(state, "READ")
    assert Decision.ALLOWED is decide(state, "DESCRIBE")


def test_create_implies_nothing() -> None:
    assert Decision.DENIED is decide(AclState([allow("CREATE", "TOPIC:orders")]), "DESCRIBE")


def test_any_rule_that_denies_wins() -> None:
    state = AclState(
        [allow("READ", "TOPIC:orders"), deny("READ", "TOPIC:ord...", principal="User:*")]
    )
    assert Decision.DENIED is decide(state, "READ")


def test_rules_of_others_name_the_resource() -> None:
    state = AclState([allow("READ", "TOPIC:orders", principal="User:bob")])
    assert Decision.DENIED is decide(state, "READ")
    assert Decision.NO_RULES is decide(state, "READ", "other")


def test_empty_state_leaves_no_names_behind() -> None:
    rules = [allow("READ", "TOPIC:a..."), allow("READ", "TOPIC:a"), allow("READ", "TOPIC:ab...")]
    state = AclState(rules)
    for each in [*rules, *rules]:
        state.remove(each)
    assert 0 == len(state)
    assert Decision.NO_RULES is decide(state, "READ", "abc")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (AclFilter(), "abcd"),
        (AclFilter(name="orders"), "a"),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), "abc"),
        (AclFilter(name="orders", pattern_type=PatternType.PREFIXED), ""),
        (AclFilter(name="ord", pattern_type=PatternType.PREFIXED), "b"),
        (AclFilter(name="*", pattern_type=PatternType.LITERAL), "c"),
        (AclFilter(pattern_type=PatternType.MATCH), "abcd"),
        (AclFilter(ResourceType.GROUP), "d"),
        (AclFilter(principal="User:bob"), "b"),
        (AclFilter(host="10.0.0.1"), "c"),
        (AclFilter(operation=Operation.READ), "ad"),
        (AclFilter(operation=Operation.ALL), "c"),
        (AclFilter(permission=Permission.DENY), "b"),
        (AclFilter(name=""), ""),
    ],
)
def test_filters_find(asked: AclFilter, found: str) -> None:
    rules = {
        "a": allow("READ", "TOPIC:orders"),
        "b": deny("WRITE", "TOPIC:ord...", principal="User:bob"),
        "c": rule("ALLOW", "ALL", "TOPIC:*", host="10.0.0.1"),
        "d": allow("READ", "GROUP:g"),
    }
    assert [rules[each] for each in found] == AclState(rules.values()).find(asked)


@pytest.mark.parametrize(
    ("invalid", "reason"),
    [
        (allow("READ", "CLUSTER:other"), "only valid name"),
        (allow("READ", "CLUSTER:*"), "only valid name"),
        (allow("READ", "TOPIC:"), "empty resource name"),
        (allow("READ", "TOPIC:...", "User:a"), "empty resource name"),
        (allow("READ", "TOPIC:a", "alice"), "no colon"),
        (allow("READ", f"TOPIC:{'a' * (NAME_SIZE_MAX + 1)}"), "at most 4096"),
        (allow("READ", "TOPIC:a", "User:" + "a" * NAME_SIZE_MAX), "principal: expected at most"),
        (deny("READ", "TOPIC:persistent://public/default/a"), "another spelling"),
        (deny("READ", "TOPIC:public/default/a..."), "another spelling"),
    ],
)
def test_invalid_rules_are_refused(invalid: AclRule, reason: str) -> None:
    with pytest.raises(InvalidRule, match=reason):
        check_rule(invalid)


def test_valid_rules_pass() -> None:
    check_rule(allow("ALTER", f"CLUSTER:{CLUSTER_NAME}"))
    check_rule(deny("READ", "TOPIC:tenant/namespace/..."))
    check_rule(allow("READ", "GROUP:persistent://x", "Role:a:b"))

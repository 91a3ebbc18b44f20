"""Authorizer: super users, durable rules, versions, caches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kledger.ledger import LedgerError, LedgerStore, UnreadableRow
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.security import authorizer as authorizer_module
from kledger.security.acl_rows import (
    ACL_ROWS,
    KEY_PREFIX,
    RuleCreation,
    decode_row,
    encode_key,
)
from kledger.security.acl_state import (
    CLUSTER_NAME,
    AclFilter,
    AclRule,
    Operation,
    ResourceType,
)
from kledger.security.authorizer import Authorizer, TooManyRules, parse_super_users
from kledger.security.principal import ANONYMOUS, BROKER, Principal
from tests.security.acl_words import allow, deny

ALICE, BOB, ROOT = Principal("alice"), Principal("bob"), Principal("root")
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC = ResourceType.TOPIC
START_MS = 1_000


@asynccontextmanager
async def authorizing(
    engine: FaultyEngine | None = None, *, allows_without_rules: bool = False
) -> AsyncIterator[Authorizer]:
    clock = ManualClock(START_MS)
    async with LedgerStore.open(None, engine=engine or FaultyEngine(None), clock=clock) as store:
        yield Authorizer(
            store, clock, super_users=[ROOT], allows_without_rules=allows_without_rules
        )


def may(authorizer: Authorizer, principal: Principal, operation: Operation = READ) -> bool:
    return authorizer.authorize(principal, "::1", operation, TOPIC, "t")


async def test_rules_hold_when_they_are_created_and_not_when_they_are_deleted() -> None:
    async with authorizing() as authorizer:
        assert not may(authorizer, ALICE)
        await authorizer.create([allow("READ", "TOPIC:t"), allow("WRITE", "TOPIC:t")])
        assert may(authorizer, ALICE)
        assert not may(authorizer, BOB)
        found = await authorizer.delete([AclFilter(operation=READ), AclFilter(name="nothing")])
        assert [[allow("READ", "TOPIC:t")], []] == found
        assert not may(authorizer, ALICE)
        assert may(authorizer, ALICE, WRITE)


async def test_only_the_principal_of_peers_is_a_broker_and_nobody_of_its_name() -> None:
    """What had been decided for a broker held for a user of the same type and name."""
    user = Principal(*BROKER)

    def may_act(principal: Principal) -> bool:
        action = Operation.CLUSTER_ACTION
        return authorizer.authorize(principal, "::1", action, ResourceType.CLUSTER, CLUSTER_NAME)

    async with authorizing() as authorizer:
        assert [False, True, False, True] == [may_act(each) for each in [user, BROKER] * 2]
        assert not any(may(authorizer, BROKER, each) for each in (READ, WRITE, DESCRIBE))


async def test_super_users_may_do_everything() -> None:
    async with authorizing() as authorizer:
        await authorizer.create([deny("ALL", "TOPIC:*", principal="User:*")])
        assert may(authorizer, ROOT)
        assert not may(authorizer, ALICE)


async def test_resource_without_rules_is_open_where_the_setting_says_so() -> None:
    async with authorizing(allows_without_rules=True) as authorizer:
        assert may(authorizer, ANONYMOUS)
        assert authorizer.authorize_any(ANONYMOUS, "::1", WRITE, TOPIC)
        await authorizer.create([allow("READ", "TOPIC:t")])
        assert not may(authorizer, ANONYMOUS)


async def test_right_on_any_resource() -> None:
    async with authorizing() as authorizer:
        assert authorizer.authorize_any(ROOT, "::1", WRITE, TOPIC)
        assert not authorizer.authorize_any(ALICE, "::1", WRITE, TOPIC)
        await authorizer.create([allow("WRITE", "TOPIC:t")])
        assert authorizer.authorize_any(ALICE, "::1", WRITE, TOPIC)
        assert not authorizer.authorize_any(BOB, "::1", WRITE, TOPIC)


async def test_authorized_operations_have_a_bit_each() -> None:
    async with authorizing() as authorizer:
        await authorizer.create([allow("READ", "TOPIC:t")])
        bits = authorizer.authorized_operations(ALICE, "::1", TOPIC, "t")
        assert (1 << READ | 1 << DESCRIBE) == bits


async def test_listeners_are_called_once_for_each_change() -> None:
    async with authorizing() as authorizer:
        before, calls = authorizer.version, [0]

        def changed() -> None:
            calls[0] += 1
            assert may(authorizer, ALICE)

        authorizer.changed.add(changed)
        await authorizer.create([allow("READ", "TOPIC:t"), allow("WRITE", "TOPIC:t")])
        after = authorizer.version
        assert before < after
        await authorizer.create([allow("READ", "TOPIC:t")])
        await authorizer.delete([AclFilter(name="nothing")])
        assert (after, [1]) == (authorizer.version, calls)


async def test_rules_survive_a_restart() -> None:
    engine = FaultyEngine(None)
    rules = [allow("READ", "TOPIC:t"), deny("ALL", "GROUP:g...", principal="User:CN=ä,O=x")]
    async with authorizing(engine) as authorizer:
        await authorizer.create(rules)
        await authorizer.delete([AclFilter(ResourceType.GROUP)])
        await authorizer.create(rules)
    async with authorizing(engine) as authorizer:
        assert set(rules) == set(authorizer.find(AclFilter()))
        assert may(authorizer, ALICE)


async def test_failed_write_changes_nothing() -> None:
    engine = FaultyEngine(None)
    async with authorizing(engine) as authorizer:
        before = authorizer.version
        engine.fail_next("commit")
        with pytest.raises(LedgerError):
            await authorizer.create([allow("READ", "TOPIC:t")])
        assert not may(authorizer, ALICE)
        assert before == authorizer.version


async def test_number_of_rules_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "RULES_MAX", 2)
    async with authorizing() as authorizer:
        rules = [allow("READ", f"TOPIC:{index}") for index in range(3)]
        with pytest.raises(TooManyRules, match="at most 2"):
            await authorizer.create(rules)
        assert 0 == len(authorizer)
        await authorizer.create(rules[:2])
        await authorizer.create(rules[:2])
        assert 2 == len(authorizer)


async def test_number_of_cached_decisions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "DECISIONS_MAX", 10)
    async with authorizing() as authorizer:
        for index in range(25):
            assert not authorizer.authorize(ALICE, "::1", READ, TOPIC, str(index))
        assert 5 == authorizer._decision_count


async def test_concurrent_changes_all_hold() -> None:
    async with authorizing() as authorizer:
        rules = [allow("READ", f"TOPIC:{index}") for index in range(50)]
        await asyncio.gather(*(authorizer.create([each]) for each in rules))
        assert set(rules) == set(authorizer.find(AclFilter()))


@pytest.mark.parametrize(
    "stored",
    [
        allow("READ", "TOPIC:t"),
        deny("ALL", "TRANSACTIONAL_ID:...", principal="User:*"),
        allow("CREATE_TOKENS", "USER:User:bob"),
    ],
)
def test_row_of_a_rule_has_all_of_it(stored: AclRule) -> None:
    key = encode_key(stored)
    assert key.startswith(KEY_PREFIX)
    assert stored == decode_row(key, b"\x01" + bytes(8))[0]


@pytest.mark.parametrize(
    ("key", "row"),
    [
        (encode_key(allow("READ", "TOPIC:t"))[:-1] + b"\x09", b"\x01" + bytes(8)),
        (encode_key(allow("READ", "TOPIC:t"))[:-1], b"\x01" + bytes(8)),
        (encode_key(allow("READ", "TOPIC:t")), b"\x02"),
    ],
)
def test_unreadable_row_ends_the_start(key: bytes, row: bytes) -> None:
    """An unreadable rule must not be taken for none: it may be one that denies."""
    with pytest.raises(UnreadableRow):
        decode_row(key, row)


def test_super_users_are_separated_by_semicolons() -> None:
    assert {ROOT, Principal("CN=a,O=x")} == parse_super_users("User:root; User:CN=a,O=x;")
    assert frozenset() == parse_super_users("")
    with pytest.raises(ValueError, match="expected TYPE:NAME"):
        parse_super_users("root")


def test_stored_rules_keep_their_bytes() -> None:
    """A rule that an older program stored must be found by every newer one."""
    stored = deny("READ", "GROUP:g...", "User:ä")
    key = b"acl\x01\x03\x04\x00\x01g\x00\x07User:\xc3\xa4\x00\x01*\x03\x02"
    row = b"\x01\x00\x00\x00\x00\x00\x00\x03\xe8"
    assert (key, row) == (encode_key(stored), ACL_ROWS.encode(RuleCreation(START_MS)))
    assert (stored, RuleCreation(START_MS)) == decode_row(key, row)

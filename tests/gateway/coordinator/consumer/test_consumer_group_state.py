"""The group as a whole: commits, durability, descriptions."""

from dataclasses import replace

import pytest

from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.consumer_words import (
    SESSION_MS,
    CatalogOfTest,
    ConsumerWorld,
    command,
    join_command,
    settle,
)

MEMBER = RequestingMember("a", 1, uses_member_epoch=True)
TOOL = RequestingMember("", -1)


@pytest.mark.parametrize(
    ("sender", "is_transactional", "expected"),
    [
        (MEMBER, False, ErrorCode.NONE),
        (replace(MEMBER, generation=0), False, ErrorCode.STALE_MEMBER_EPOCH),
        (replace(MEMBER, generation=2), False, ErrorCode.STALE_MEMBER_EPOCH),
        (replace(MEMBER, generation=-1), False, ErrorCode.STALE_MEMBER_EPOCH),
        (replace(MEMBER, member_id="x"), False, ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(MEMBER, uses_member_epoch=False), False, ErrorCode.UNSUPPORTED_VERSION),
        (TOOL, False, ErrorCode.UNKNOWN_MEMBER_ID),
        (TOOL, True, ErrorCode.NONE),
        (replace(MEMBER, uses_member_epoch=False), True, ErrorCode.NONE),
        (replace(MEMBER, generation=2), True, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_row_108_commit_is_checked_by_the_member_epoch(
    sender: RequestingMember, is_transactional: bool, expected: ErrorCode
) -> None:
    world = ConsumerWorld()
    world.join("a")
    answer = world.group.check_commit(sender, world.now_ms, is_transactional=is_transactional)
    assert expected == answer


def test_empty_group_accepts_only_commits_of_tools() -> None:
    world = ConsumerWorld()
    assert ErrorCode.NONE == world.group.check_commit(TOOL, 0)
    assert ErrorCode.UNKNOWN_MEMBER_ID == world.group.check_commit(MEMBER, 0)


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        ("a", 1, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_row_108_offsets_are_read_by_the_member_epoch(
    member_id: str | None, epoch: int, expected: ErrorCode
) -> None:
    world = ConsumerWorld()
    world.join("a")
    assert expected == world.group.check_fetch(member_id, epoch)


def test_no_answer_precedes_the_write_it_depends_on() -> None:
    """A repeated join that changes nothing waits for the write of the first one."""
    world = ConsumerWorld(stores_at_once=False)
    first = world.send(join_command("a", "t"))
    second = world.send(join_command("a", "t"))
    assert not world.answers
    world.store()
    assert {first, second} == set(world.answers)
    third = world.send(command("a", 1))
    assert third in world.answers, "a heartbeat that changes nothing writes nothing"


def test_failed_write_changes_nothing() -> None:
    world = ConsumerWorld(stores_at_once=False)
    a = world.client("a")
    world.send(join_command("a", "t"))
    world.store()
    before = world.group.describe()
    asked = [world.send(join_command("b", "t")), world.send(command("a", -1))]
    world.store(failed=True)
    refused = [world.answer(each).error for each in asked]
    assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2 == refused
    assert before == world.group.describe()
    world.stores_at_once = True
    a.epoch = 1
    assert ErrorCode.NONE == a.heartbeat().error


def test_member_whose_leaving_could_not_be_stored_has_a_session() -> None:
    world = ConsumerWorld(stores_at_once=False)
    world.send(join_command("a", "t"))
    world.store()
    world.send(command("a", -1))
    world.store(failed=True)
    world.stores_at_once = True
    world.advance(SESSION_MS)
    assert world.group.is_empty


def test_member_that_could_not_be_removed_is_removed_after_another_session_timeout() -> None:
    world = ConsumerWorld(stores_at_once=False)
    world.send(join_command("a", "t"))
    world.store()
    world.advance(SESSION_MS)
    assert world.group.is_empty
    world.store(failed=True)
    assert not world.group.is_empty
    world.advance(SESSION_MS)
    world.store()
    assert world.group.is_empty
    assert not world.timers


def test_session_that_ends_while_its_member_leaves_is_ended_by_the_leaving() -> None:
    world = ConsumerWorld(stores_at_once=False)
    world.send(join_command("a", "t"))
    world.store()
    world.send(command("a", -1))
    world.advance(SESSION_MS)
    world.store()
    assert (True, {}) == (world.group.is_empty, world.timers)


def test_revocation_that_was_confirmed_but_not_stored_has_a_rebalance_timeout() -> None:
    """The timeout fired while the confirmation was written, and nothing else ended the wait."""
    world = ConsumerWorld()
    parts = world.catalog.parts
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    world.heartbeat("a", 1)
    world.stores_at_once = False
    world.send(command("a", 1, owned=parts("t", 0, 1)))
    world.advance(10_000)
    assert "a" in world.group.members
    world.store(failed=True)
    world.advance(10_000)
    assert "a" not in world.group.members


def test_topics_that_could_not_be_stored_are_assigned_with_the_next_heartbeat() -> None:
    world = ConsumerWorld(CatalogOfTest(t=1))
    world.join("a")
    world.catalog.make("t", 3)
    world.stores_at_once = False
    world.send(command("a", 1))
    world.store(failed=True)
    world.stores_at_once = True
    assert world.catalog.parts("t") == world.heartbeat("a", 1).assignment


def test_restart_restores_members_epochs_and_assignments() -> None:
    world = ConsumerWorld()
    a, b = world.client("a"), world.client("b", instance_id="i")
    settle(a, b)
    before = world.group.describe()
    world.restart()
    assert before == world.group.describe()
    assert a.heartbeat().error == b.heartbeat().error == ErrorCode.NONE
    assert before == world.group.describe(), "what was settled stays"


def test_restart_during_a_revocation_continues_it() -> None:
    world = ConsumerWorld()
    a, b = world.client("a"), world.client("b")
    settle(a)
    b.heartbeat()
    a.receive(world.heartbeat("a", a.epoch))
    world.restart()
    assert world.heartbeat("b", b.epoch).assignment is None, "a still has it"
    settle(a, b)
    assert [2, 2] == [len(a.owned), len(b.owned)]


def test_restart_gives_silent_members_one_session() -> None:
    world = ConsumerWorld()
    world.join("a")
    world.restart()
    world.advance(SESSION_MS - 1)
    assert not world.group.is_empty
    world.advance(1)
    assert world.group.is_empty
    assert world.durable is not None
    assert 0 == len(world.durable.members)


def test_states_have_the_names_of_kafka() -> None:
    world = ConsumerWorld()
    seen = [world.group.state.value]
    world.join("a")
    seen.append(world.group.state.value)
    world.join("b")
    seen.append(world.group.state.value)
    world.heartbeat("b", -1)
    seen.append(world.group.state.value)
    assert ["Empty", "Stable", "Reconciling", "Assigning"] == seen


def test_topics_in_use_are_those_that_members_read() -> None:
    world = ConsumerWorld(CatalogOfTest(t=1, u=1))
    world.join("a")
    assert ["t"] == list(world.group.topics_in_use)
    world.heartbeat("a", -1)
    assert [] == list(world.group.topics_in_use)
    assert world.group.is_unused


def test_lost_connection_changes_nothing() -> None:
    world = ConsumerWorld()
    world.join("a")
    assert [] == world.group.abandon(1, 0)

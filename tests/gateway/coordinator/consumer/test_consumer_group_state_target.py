"""When the target assignment is computed, and by which assignor."""

import pytest

from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.security.principal import Principal
from tests.gateway.coordinator.consumer_words import (
    CatalogOfTest,
    Client,
    ConsumerWorld,
    command,
    settle,
)

ANN_ALONE_SEES_B = (("ann", "t-a"), ("bob", "t-b"))
ANN_ALONE_SEES_A = (("ann", "t-b"), ("bob", "t-a"))


def test_row_107_new_topic_is_assigned_with_the_next_heartbeat() -> None:
    world = ConsumerWorld(CatalogOfTest())
    joined = world.join("a")
    assert frozenset() == joined.assignment
    world.catalog.make("t", 2)
    answer = world.heartbeat("a", joined.epoch)
    assert (2, world.catalog.parts("t")) == (answer.epoch, answer.assignment)


def test_new_partitions_of_a_topic_are_assigned() -> None:
    world = ConsumerWorld(CatalogOfTest(t=1))
    a, b = world.client("a"), world.client("b")
    settle(a, b)
    world.catalog.make("t", 4)
    settle(a, b)
    assert [2, 2] == [len(a.owned), len(b.owned)]


def test_deleted_topic_is_unassigned_and_a_new_one_of_its_name_is_another() -> None:
    world = ConsumerWorld(CatalogOfTest(t=2, u=1))
    a = world.client("a", "t", "u")
    settle(a)
    world.catalog.drop("t")
    settle(a)
    assert world.catalog.parts("u") == a.owned
    world.catalog.make("t", 2)
    settle(a)
    assert world.catalog.parts("t") | world.catalog.parts("u") == a.owned


def test_topic_without_subscribers_changes_nothing() -> None:
    world = ConsumerWorld()
    a = world.client("a")
    settle(a)
    before, durable = world.group.describe(), world.durable
    world.catalog.make("other", 3)
    a.heartbeat()
    assert before == world.group.describe()
    assert durable is world.durable


def test_changed_subscription_moves_the_epoch_and_a_repeated_one_does_not() -> None:
    world = ConsumerWorld(CatalogOfTest(t=1, u=1))
    world.join("a")
    assert 1 == world.heartbeat("a", 1, topic_names=("t",)).epoch
    changed = world.heartbeat("a", 1, topic_names=("t", "u"))
    assert (2, 2) == (changed.epoch, world.group.record.epoch)


def test_expression_matches_new_topics() -> None:
    world = ConsumerWorld(CatalogOfTest(**{"t-a": 1}))
    joined = world.join("a", topic_names=(), topic_regex="t-.*")
    assert world.catalog.parts("t-a") == joined.assignment
    world.catalog.make("t-b", 1)
    answer = world.heartbeat("a", joined.epoch)
    assert frozenset(world.catalog.partitions()) == answer.assignment


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([None, None], "uniform"),
        (["range", None], "range"),
        (["range", "uniform", "range"], "range"),
        (["uniform", "uniform", "range"], "uniform"),
    ],
)
def test_most_members_choose_the_assignor(asked: list[str | None], expected: str) -> None:
    world = ConsumerWorld()
    for number, assignor in enumerate(asked):
        world.join(f"m{number}", server_assignor=assignor)
    assert expected == world.group.describe().assignor


def test_first_assignor_of_the_settings_is_the_default() -> None:
    world = ConsumerWorld(config=GroupConfig(consumer_assignors=("range", "uniform")))
    world.join("a")
    assert "range" == world.group.record.assignor


# Rules: an expression matches what the client of its member may describe.


def matching(world: ConsumerWorld, name: str) -> Client:
    """Return a member that subscribes by an expression, in the name of a user."""
    return world.client(name, topic_names=(), topic_regex="t-.*", principal=Principal(name))


def ruled_world(*hidden: tuple[str, str]) -> tuple[ConsumerWorld, Client, Client]:
    """Return a settled group of two users, and its members."""
    world = ConsumerWorld(CatalogOfTest(**{"t-a": 2, "t-b": 2}))
    world.catalog.hide(*hidden)
    ann, bob = matching(world, "ann"), matching(world, "bob")
    settle(ann, bob)
    return world, ann, bob


def test_expression_gives_no_member_what_its_client_may_not_describe() -> None:
    world, ann, bob = ruled_world(("bob", "t-b"), ("ann", "t-a"), ("bob", "t-a"))
    assert (world.catalog.parts("t-b"), frozenset()) == (ann.owned, bob.owned)


def test_changed_rules_move_topics_between_members() -> None:
    """The group has the same topics before and after, only its members may not read the same."""
    world, ann, bob = ruled_world(*ANN_ALONE_SEES_B)
    assert (world.catalog.parts("t-b"), world.catalog.parts("t-a")) == (ann.owned, bob.owned)
    world.catalog.hide(*ANN_ALONE_SEES_A)
    settle(ann, bob)
    assert (world.catalog.parts("t-a"), world.catalog.parts("t-b")) == (ann.owned, bob.owned)


def test_rules_that_changed_while_the_server_was_down_move_topics() -> None:
    world, ann, bob = ruled_world(*ANN_ALONE_SEES_B)
    world.catalog.hide(*ANN_ALONE_SEES_A)
    world.restart()
    settle(ann, bob)
    assert (world.catalog.parts("t-a"), world.catalog.parts("t-b")) == (ann.owned, bob.owned)


def test_changed_rules_count_though_the_write_for_them_failed() -> None:
    world, ann, bob = ruled_world(*ANN_ALONE_SEES_B)
    world.catalog.hide(*ANN_ALONE_SEES_A)
    world.stores_at_once = False
    world.send(command("ann", ann.epoch, owned=ann.owned, principal=Principal("ann")))
    world.store(failed=True)
    world.stores_at_once = True
    settle(ann, bob)
    assert (world.catalog.parts("t-a"), world.catalog.parts("t-b")) == (ann.owned, bob.owned)


def test_changed_rules_change_nothing_for_members_without_an_expression() -> None:
    world = ConsumerWorld()
    a = world.client("a")
    settle(a)
    durable = world.durable
    world.catalog.hide(("ann", "t"))
    a.heartbeat()
    assert durable is world.durable


def test_member_of_another_user_has_the_rights_of_that_one() -> None:
    """A static member comes back with another login."""
    world = ConsumerWorld(CatalogOfTest(**{"t-a": 2, "t-b": 2}))
    world.catalog.hide(("bob", "t-b"))
    first = world.join("m", topic_names=(), topic_regex="t-.*", principal=Principal("ann"))
    assert frozenset(world.catalog.partitions()) == first.assignment
    world.heartbeat("m", first.epoch, principal=Principal("bob"), owned=first.assignment)
    kept = world.catalog.parts("t-a")
    second = world.heartbeat("m", first.epoch, principal=Principal("bob"), owned=kept)
    assert (first.epoch + 1, kept) == (second.epoch, world.group.members.member("m").assigned)

"""Names and spellings of topics and namespaces."""

import pytest

from kledger.topics.errors import InvalidNamespaceName, InvalidTopicName
from kledger.topics.topic_names import (
    check_name,
    check_namespace,
    collision_key,
    is_internal,
    namespace_of,
    resolve_name,
)


@pytest.mark.parametrize(
    "name", ["a", "A-b_c.9", "x" * 249, "...", "__x", "t/n/a", "/".join(["x" * 249] * 3)]
)
def test_good_names_pass(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "a b", "ü", "a/b", "x" * 250, "a\n", "a\0", "a/b/c/d", "t//a", "/n/a",
        "t/n/", "t/../a", "./n/a", "t/n/..", "t/n/" + "x" * 250, "t" * 250 + "/n/a", "t/n/a b",
        "persistent://a",
    ],
)  # fmt: skip
def test_row_21_bad_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_name(name)


@pytest.mark.parametrize("name", ["public/default", "t/n", "a.b/c-d_9"])
def test_good_namespaces_pass(name: str) -> None:
    check_namespace(name)


@pytest.mark.parametrize(
    "name", ["", "t", "t/", "/n", "t/n/x", "t/..", "./n", "t/a b", "t" * 250 + "/n", "t/ü"]
)
def test_bad_namespaces_are_refused(name: str) -> None:
    with pytest.raises(InvalidNamespaceName):
        check_namespace(name)


@pytest.mark.parametrize(
    ("spelling", "name", "namespace"),
    [
        ("orders", "orders", "public/default"),
        ("public/default/orders", "orders", "public/default"),
        ("persistent://public/default/orders", "orders", "public/default"),
        ("t/n/orders", "t/n/orders", "t/n"),
        ("persistent://t/n/orders", "t/n/orders", "t/n"),
        ("public/other/orders", "public/other/orders", "public/other"),
    ],
)
def test_spellings_resolve_to_one_name(spelling: str, name: str, namespace: str) -> None:
    assert (name, namespace) == (resolve_name(spelling), namespace_of(name))


@pytest.mark.parametrize(
    "spelling",
    [
        "non-persistent://public/default/orders", "persistent://orders", "persistent://t/orders",
        "public/default/t/n/orders", "persistent://public/default/t/n/x", "public/default/",
        "persistent://persistent://t/n/x",
    ],
)  # fmt: skip
def test_other_spellings_are_no_names(spelling: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_name(resolve_name(spelling))


def test_dot_and_underscore_collide_in_one_namespace() -> None:
    assert collision_key("a.b") == collision_key("a_b") != collision_key("a-b")
    assert collision_key("t/n/a.b") == collision_key("t/n/a_b") != collision_key("a_b")
    assert collision_key("t.u/n/a") != collision_key("t_u/n/a")


def test_internal_names_are_kafkas() -> None:
    names = ("__cluster_metadata", "__consumer_offsets", "__transaction_state", "orders")
    assert [True, True, True, False] == [is_internal(name) for name in names]
    assert not is_internal("t/n/__consumer_offsets")

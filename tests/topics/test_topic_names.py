"""Names and spellings."""

import pytest

from kledger.topics.errors import InvalidTopicName
from kledger.topics.topic_names import check_name, collision_key, is_internal, resolve_name


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "__x"])
def test_good_names_pass(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a/b", "x" * 250, "a\n", "a\0"])
def test_row_21_bad_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_name(name)


def test_spellings_resolve_to_one_name() -> None:
    for spelling in ("orders", "public/default/orders", "persistent://public/default/orders"):
        assert "orders" == resolve_name(spelling)
    for other in ("persistent://t/n/orders", "non-persistent://public/default/orders"):
        with pytest.raises(InvalidTopicName):
            check_name(resolve_name(other))


def test_dot_and_underscore_collide() -> None:
    assert collision_key("a.b") == collision_key("a_b") != collision_key("a-b")


def test_internal_names_are_kafkas() -> None:
    names = ("__cluster_metadata", "__consumer_offsets", "__transaction_state", "orders")
    assert [True, True, True, False] == [is_internal(name) for name in names]

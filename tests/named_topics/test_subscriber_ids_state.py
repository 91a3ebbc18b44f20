"""Ids of subscribers and the times of groups."""

from kledger.named_topics.subscriber_ids_state import SubscriberIds, first_id


def test_ids_grow_though_the_clock_goes_back() -> None:
    ids = SubscriberIds()
    found = [ids.new(now_ms) for now_ms in (5, 5, 3, 6)]
    assert [first_id(5), first_id(5) + 1, first_id(5) + 2, first_id(6)] == found


def test_group_is_between_the_ids_before_it_and_those_of_its_subscribers() -> None:
    ids = SubscriberIds()
    before = ids.new(5)
    created_ms = ids.new_group_ms(5)
    assert before < first_id(created_ms) < ids.new(5)


def test_ids_are_larger_than_the_groups_that_a_restart_finds() -> None:
    ids = SubscriberIds()
    ids.note_group(100)
    assert ids.new(5) > first_id(100)

"""Options: ranges, and what a later call may say."""

from dataclasses import replace

import pytest

from kledger.named_topics.errors import WrongArgument
from kledger.named_topics.model import NO_LIMIT, NamedTopicOptions
from kledger.named_topics.options_plan import check_options, check_repeated, topic_configs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("element_expiry_ms", 0),
        ("subscriber_timeout_ms", 999),
        ("page_bytes", 0),
        ("page_bytes", NO_LIMIT),
        ("max_unconsumed_bytes", 0),
    ],
)
def test_value_out_of_range_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(WrongArgument, match=rf"{name}: expected \d+ to \d+, got {value}"):
        check_options(replace(NamedTopicOptions(), **{name: value}), 0)  # type: ignore[arg-type]


def test_no_limits_are_allowed() -> None:
    check_options(NamedTopicOptions(subscriber_timeout_ms=0), 1)
    with pytest.raises(WrongArgument, match="channel_count"):
        check_options(NamedTopicOptions(), -1)


def test_later_call_repeats_or_leaves_the_default() -> None:
    stored = NamedTopicOptions(retain_values=True, page_bytes=7)
    check_repeated(stored, stored, what="t")
    check_repeated(stored, NamedTopicOptions(), what="t")
    with pytest.raises(WrongArgument, match="page_bytes of t: expected 7, got 8"):
        check_repeated(stored, NamedTopicOptions(page_bytes=8), what="t")
    with pytest.raises(WrongArgument, match="retain_values of t: expected False, got True"):
        check_repeated(NamedTopicOptions(), stored, what="t")


def test_topic_keeps_elements_until_they_expire() -> None:
    assert "-1" == topic_configs(NamedTopicOptions())["retention.ms"]
    assert "5" == topic_configs(NamedTopicOptions(element_expiry_ms=5))["retention.ms"]

"""Topics that are there and topics that are not; rows 21 and 23 of docs/SCENARIOS.md."""

from uuid import UUID

import pytest

from kledger.gateway.metadata.topic_descriptions import (
    describe_missing_topic,
    missing_topic_error,
    without_duplicates,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import MetadataRequestTopic

SOME_ID = UUID(int=5)


def by_name(name: str | None) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name)


def by_id(topic_id: UUID = SOME_ID, name: str | None = None) -> MetadataRequestTopic:
    return MetadataRequestTopic(topic_id=topic_id, name=name)


def test_a_repeated_topic_is_described_once() -> None:
    asked = [by_name("b"), by_name("a"), by_id(), by_name("b"), by_id(), by_id(UUID(int=6))]
    assert [by_name("b"), by_name("a"), by_id(), by_id(UUID(int=6))] == without_duplicates(asked)


@pytest.mark.parametrize("name", ["a b", "", ".", "..", "x" * 250, "a/b"])
def test_row_21_an_invalid_name_differs_from_an_unknown_one(name: str) -> None:
    asked = by_name(name)
    described = describe_missing_topic(asked, missing_topic_error(asked.name), 12, 7)
    assert (ErrorCode.INVALID_TOPIC_EXCEPTION, name) == (described.error_code, described.name)
    asked = by_name("none")
    described = describe_missing_topic(asked, missing_topic_error(asked.name), 12, 7)
    assert (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none") == (described.error_code, described.name)


@pytest.mark.parametrize(("version", "name"), [(11, ""), (12, None)])
def test_row_23_an_unknown_id_is_repeated_in_its_error(version: int, name: str | None) -> None:
    for asked in (by_id(), by_id(name="t")):
        described = describe_missing_topic(asked, missing_topic_error(asked.name), version, 7)
        expected = ErrorCode.UNKNOWN_TOPIC_ID, name, SOME_ID
        assert expected == (described.error_code, described.name, described.topic_id)

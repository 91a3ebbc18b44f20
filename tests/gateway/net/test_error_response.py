"""One error about everything that was asked, for every API in every version."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest

from kledger.gateway.net.error_response import CODES, NoErrorField, error_response
from kledger.gateway.served_apis import HANDLERS, HandlerSpec
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages import (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k08_offset_commit,
    k10_find_coordinator,
    k24_add_partitions_to_txn,
    k42_delete_groups,
    k49_alter_client_quotas,
)
from kledger.gateway.wire.schema import ApiMessage, Struct, fields_of
from tests.gateway.running import fetch, produce
from tests.gateway.wire.random_messages import sample, settle

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


def codes_in(value: Struct, version: int) -> Iterator[int]:
    """Yield every error code of a message that is not inside what has one itself."""
    own = [
        getattr(value, one.name)
        for one in fields_of(type(value))
        if version in one.versions and one.name in CODES
    ]
    if any(own):
        yield from own
        return
    for one in fields_of(type(value)):
        if version in one.versions and one.type.element is not None:
            for each in getattr(value, one.name) or ():
                if isinstance(each, Struct):
                    yield from codes_in(each, version)


def answer(module: Any, request: ApiMessage, version: int) -> Any:
    return error_response(request, module.RESPONSE, version, ERROR)


@pytest.mark.parametrize("spec", HANDLERS, ids=lambda spec: spec.module)
def test_every_api_says_the_error_in_every_version(spec: HandlerSpec) -> None:
    module = import_module(f"kledger.gateway.wire.messages.{spec.module}")
    for version in range(spec.min_version, spec.max_version + 1):
        said = answer(module, settle(sample(module.REQUEST), version), version)
        read = decode(module.RESPONSE, version, encode(said, version))
        assert {int(ERROR)} == set(codes_in(read, version)), version


def test_partitions_of_produce_and_fetch_have_it_by_name_or_id() -> None:
    said = answer(k00_produce, produce({0: b"", 7: b""}, topic="orders"), 9)
    (topic,) = said.responses
    assert "orders" == topic.name
    assert [(0, 6), (7, 6)] == [(one.index, one.error_code) for one in topic.partition_responses]
    said = answer(k00_produce, produce({0: b""}, topic_id=UUID(int=3)), 13)
    assert UUID(int=3) == said.responses[0].topic_id
    said = answer(k01_fetch, fetch({4: 0}, topic="orders"), 12)
    assert (0, 0) == (said.error_code, said.session_id)
    (one,) = said.responses[0].partitions
    assert ("orders", 4, 6, b"") == (
        said.responses[0].topic,
        one.partition_index,
        one.error_code,
        one.records,
    )


def test_what_was_named_is_named_again() -> None:
    request: ApiMessage = k08_offset_commit.OffsetCommitRequest(
        topics=[
            k08_offset_commit.OffsetCommitRequestTopic(
                name="orders",
                partitions=[k08_offset_commit.OffsetCommitRequestPartition(partition_index=2)],
            )
        ]
    )
    (topic,) = answer(k08_offset_commit, request, 8).topics
    assert ("orders", 2) == (topic.name, topic.partitions[0].partition_index)
    request = k10_find_coordinator.FindCoordinatorRequest(coordinator_keys=["a", "b"])
    said = answer(k10_find_coordinator, request, 4)
    assert ["a", "b"] == [each.key for each in said.coordinators]
    request = k42_delete_groups.DeleteGroupsRequest(groups_names=["g"])
    assert ["g"] == [each.group_id for each in answer(k42_delete_groups, request, 2).results]
    quotas = k49_alter_client_quotas
    entity = quotas.EntityData(entity_type="user", entity_name=None)
    request = quotas.AlterClientQuotasRequest(entries=[quotas.EntryData(entity=[entity])])
    (entry,) = answer(quotas, request, 1).entries
    assert [("user", None)] == [(each.entity_type, each.entity_name) for each in entry.entity]


def test_outermost_code_is_the_one() -> None:
    """As in Apache Kafka: what is refused as a whole names nothing."""
    said = answer(k24_add_partitions_to_txn, sample(k24_add_partitions_to_txn.REQUEST), 5)
    assert (6, []) == (said.error_code, said.results_by_transaction)


def test_request_that_names_nothing_has_it_on_top_or_nowhere() -> None:
    nothing = k03_metadata.MetadataRequest(topics=[])
    assert 6 == answer(k03_metadata, nothing, 13).error_code
    assert 6 == answer(k01_fetch, k01_fetch.FetchRequest(), 12).error_code
    with pytest.raises(NoErrorField, match="MetadataResponse v12 to a request"):
        answer(k03_metadata, nothing, 12)

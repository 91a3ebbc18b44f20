"""Rows of groups of the consumer protocol round-trip."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.coordinator.classic.classic_group_record import (
    ClassicGroupRecord,
    encode_classic_group,
)
from kledger.gateway.coordinator.consumer.consumer_group_record import (
    ConsumerGroupRecord,
    decode_consumer_group,
    encode_consumer_group,
    is_consumer_group_row,
)
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ClassicMemberMetadata,
    ConsumerMember,
    ConsumerRoster,
    MemberState,
)
from kledger.gateway.coordinator.consumer_messages import TopicIdPartition, TopicMetadata
from kledger.ledger import UnreadableRow
from kledger.security.principal import Principal
from tests.gateway.coordinator.consumer.test_consumer_member_state import MEMBER, parts

texts = st.text(max_size=10)
numbers = st.integers(-(2**31), 2**31 - 1)
partitions = st.frozensets(
    st.builds(TopicIdPartition, st.uuids(), st.integers(0, 2**31 - 1)), max_size=4
)
members = st.builds(
    ConsumerMember,
    member_id=texts,
    instance_id=st.none() | texts,
    rack_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=numbers,
    principal=st.builds(Principal, texts, texts),
    topic_names=st.lists(texts, max_size=3).map(tuple),
    topic_regex=texts,
    server_assignor=st.none() | texts,
    epoch=numbers,
    previous_epoch=numbers,
    state=st.sampled_from(MemberState),
    classic=st.none()
    | st.builds(
        ClassicMemberMetadata,
        st.integers(0, 2**31 - 1),
        st.lists(st.tuples(texts, st.binary(max_size=5)), max_size=2).map(tuple),
    ),
    assigned=partitions,
    revoking=partitions,
    target=partitions,
)


def roster(drawn: list[ConsumerMember]) -> ConsumerRoster:
    """Return a roster of those that share neither ids nor partitions with an earlier one."""
    kept = ConsumerRoster()
    for each in drawn:
        is_new = each.member_id not in kept and kept.holder_of(each.instance_id or "") is None
        if is_new and all(kept.is_free(one) for one in each.held):
            kept = kept.with_members(each)
    return kept


facts = st.builds(TopicMetadata, texts, st.uuids(), st.integers(1, 1000))
groups = st.builds(
    ConsumerGroupRecord,
    group_id=st.just("g"),
    epoch=numbers,
    assignment_epoch=numbers,
    assignor=texts,
    topics=st.lists(facts, max_size=3).map(
        lambda found: {topic_metadata.name: topic_metadata for topic_metadata in found}
    ),
    members=st.lists(members, max_size=3).map(roster),
    saved_ms=st.integers(0, 2**62),
)


@given(groups)
def test_group_round_trips_through_its_row(record: ConsumerGroupRecord) -> None:
    row = encode_consumer_group(record)
    assert is_consumer_group_row(row)
    assert record == decode_consumer_group("g", row)


def test_rows_of_classic_groups_are_distinguished_by_version() -> None:
    classic = ClassicGroupRecord(
        group_id="g", generation=1, protocol_type=None, protocol_name=None, leader=None
    )
    row = encode_classic_group(classic) + bytes(20)
    assert not is_consumer_group_row(row)
    with pytest.raises(UnreadableRow, match="group row 'g': expected version 2 or 3, got 1"):
        decode_consumer_group("g", row)


def test_layout_does_not_change_by_accident() -> None:
    member = replace(
        MEMBER,
        principal=Principal("ann"),
        topic_names=("t",),
        topic_regex="x",
        revoking=parts("2"),
        state=MemberState.REVOKING,
    )
    record = ConsumerGroupRecord(
        group_id="g",
        epoch=7,
        assignment_epoch=6,
        assignor="uniform",
        topics={"t": TopicMetadata("t", UUID(int=1), 6)},
        members=ConsumerRoster((member,)),
        saved_ms=9,
    )
    topic = "00000001" + "00" * 15 + "01"
    expected = (
        "03" + "0000000000000009" + "00000007" + "00000006"
        + "00000007" + b"uniform".hex()
        + "00000001" + "00000001" + b"t".hex() + "00" * 15 + "01" + "00000006"
        + "00000001" + "00000001" + b"m".hex() + "ffffffff" + "ffffffff"
        + "00000006" + b"client".hex() + "00000009" + b"/10.0.0.1".hex()
        + "0000ea60" + "00000005" + "00000004" + "00000001" + "ffffffff"
        + "00000001" + b"x".hex() + "ffffffff" + "00000001" + "00000001" + b"t".hex()
        + topic + "00000002" + "00000000" + "00000001"
        + topic + "00000001" + "00000002"
        + topic + "00000002" + "00000000" + "00000001"
        + "00000003" + b"ann".hex() + "00000004" + b"User".hex()
    )  # fmt: skip
    assert expected == encode_consumer_group(record).hex()

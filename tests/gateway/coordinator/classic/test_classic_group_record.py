"""Rows of groups round-trip."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.gateway.coordinator.classic.classic_group_record import (
    GROUP_KEY_PREFIX,
    ClassicGroupRecord,
    ClassicMemberRecord,
    decode_classic_group,
    decode_group_key,
    encode_classic_group,
    encode_group_key,
)
from kledger.ledger import UnreadableRow

texts = st.text(max_size=20)
timeouts = st.integers(0, 2**31 - 1)
members = st.builds(
    ClassicMemberRecord,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    session_timeout_ms=timeouts,
    rebalance_timeout_ms=timeouts,
    protocols=st.lists(st.tuples(texts, st.binary(max_size=20)), max_size=3).map(tuple),
    assignment=st.binary(max_size=20),
)
groups = st.builds(
    ClassicGroupRecord,
    group_id=st.just("g"),
    generation=st.integers(0, 2**31 - 1),
    protocol_type=st.none() | texts,
    protocol_name=st.none() | texts,
    leader=st.none() | texts,
    members=st.lists(members, max_size=3).map(tuple),
    saved_ms=st.integers(0, 2**62),
)


@given(groups)
def test_group_round_trips_through_its_row(record: ClassicGroupRecord) -> None:
    assert decode_classic_group("g", encode_classic_group(record)) == record


@given(st.text())
def test_id_round_trips_through_its_key(group_id: str) -> None:
    assert decode_group_key(encode_group_key(group_id)) == group_id


def test_layout_does_not_change_by_accident() -> None:
    record = ClassicGroupRecord(
        group_id="g",
        generation=7,
        protocol_type="consumer",
        protocol_name=None,
        leader="a",
        saved_ms=99,
        members=(
            ClassicMemberRecord(
                member_id="a",
                instance_id=None,
                client_id="c",
                client_host="/h",
                session_timeout_ms=10,
                rebalance_timeout_ms=20,
                protocols=(("p", b"m"),),
                assignment=b"xyz",
            ),
        ),
    )

    assert encode_classic_group(record) == (
        b"\x01"
        + struct.pack(">qi", 99, 7)
        + b"\x00\x00\x00\x08consumer"
        + b"\xff\xff\xff\xff"
        + b"\x00\x00\x00\x01a"
        + b"\x00\x00\x00\x01"
        + b"\x00\x00\x00\x01a"
        + b"\xff\xff\xff\xff"
        + b"\x00\x00\x00\x01c"
        + b"\x00\x00\x00\x02/h"
        + struct.pack(">ii", 10, 20)
        + b"\x00\x00\x00\x03xyz"
        + b"\x00\x00\x00\x01"
        + b"\x00\x00\x00\x01p"
        + b"\x00\x00\x00\x01m"
    )
    assert encode_group_key("g") == GROUP_KEY_PREFIX + b"g"


def test_row_of_a_newer_program_is_refused() -> None:
    with pytest.raises(UnreadableRow, match="group row 'g': expected version 1, got 2"):
        decode_classic_group("g", b"\x02" + bytes(40))


def test_size_is_about_that_of_the_row() -> None:
    """It guards a limit before the row is built."""
    member = ClassicMemberRecord(
        member_id="client-" + "0" * 36,
        instance_id="instance",
        client_id="client",
        client_host="/10.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=(("range", bytes(500)), ("coop", bytes(700))),
        assignment=bytes(900),
    )
    record = ClassicGroupRecord(
        group_id="g",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=member.member_id,
        members=(member,) * 50,
    )

    row_size = len(encode_classic_group(record))

    assert row_size * 0.9 < record.size() < row_size * 1.1

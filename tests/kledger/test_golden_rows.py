"""Stored rows of every kind and version: written byte for byte as ever, and read back.

A store of an older program is opened by a newer one, so the bytes in this table never change. A new
layout is a new version, and a new line.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from kledger.gateway.configs.settings_table import SettingsTable
from kledger.gateway.coordinator.classic.classic_group_record import (
    ClassicGroupRecord,
    ClassicMemberRecord,
    decode_classic_group,
    decode_group_key,
    encode_classic_group,
    encode_group_key,
)
from kledger.gateway.coordinator.consumer.consumer_group_record import (
    ConsumerGroupRecord,
    decode_consumer_group,
    encode_consumer_group,
)
from kledger.gateway.coordinator.consumer.consumer_member_state import (
    ClassicMemberMetadata,
    ConsumerMember,
    ConsumerRoster,
    MemberState,
)
from kledger.gateway.coordinator.consumer_messages import TopicIdPartition, TopicMetadata
from kledger.gateway.coordinator.shard_counts import (
    decode_count,
    encode_count,
    encode_count_key,
)
from kledger.gateway.coordinator.transactions.producer_ids import PRODUCER_IDS_KEY, ProducerIds
from kledger.gateway.coordinator.transactions.txn_record import (
    TxnRecord,
    TxnState,
    decode_txn,
    encode_txn,
    encode_txn_key,
)
from kledger.ledger import LedgerStore
from kledger.ledger.cursors.cursor_records import CursorRecord, decode_cursor, encode_cursor
from kledger.ledger.metadata.records import (
    CompactedLedger,
    LedgerRecord,
    ManagedLedgerRecord,
    OffloadContext,
    decode_counter,
    decode_ledger,
    decode_managed_ledger,
    encode_counter,
    encode_ledger,
    encode_managed_ledger,
)
from kledger.ledger.position import Position
from kledger.ledger.testing import FaultyEngine
from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.model import NamedTopicOptions
from kledger.named_topics.records import (
    GroupKey,
    NamedTopicRecord,
    SubscriberGroupRecord,
    decode_channel,
    decode_group,
    encode_channel,
    encode_channel_key,
    encode_group,
    encode_topic_key,
)
from kledger.named_topics.records import decode_topic as decode_named_topic
from kledger.named_topics.records import encode_group_key as encode_subscriber_group_key
from kledger.named_topics.records import encode_topic as encode_named_topic
from kledger.offsets import CommittedOffset, TopicPartition
from kledger.offsets.records import (
    decode_key,
    decode_pending_key,
    decode_value,
    encode_key,
    encode_pending_key,
    encode_value,
)
from kledger.security.principal import Principal
from kledger.topics.partition.leader_epoch_state import EpochStart
from kledger.topics.partition.offset_index import Interval, LedgerSummary
from kledger.topics.partition.producer_state import BatchRange, ProducerEntry
from kledger.topics.partition.records import (
    CURSOR_ROWS,
    NAMESPACE_ROWS,
    Checkpoint,
    CursorKey,
    NamespaceRecord,
    TopicRecord,
    decode_aborted,
    decode_checkpoint,
    decode_first_timestamp,
    decode_interval,
    decode_ledger_summary,
    decode_log_start,
    decode_manifest,
    decode_topic,
    encode_aborted,
    encode_checkpoint,
    encode_first_timestamp,
    encode_interval,
    encode_ledger_summary,
    encode_log_start,
    encode_manifest,
    encode_topic,
)
from kledger.topics.partition.transaction_state import AbortedTransaction

TOPIC_ID = UUID("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
NAMESPACE = NamespaceRecord("shop/eu", {"retention.ms": "5"}, 99)
EMPTY_GROUP = ClassicGroupRecord(
    group_id="g",
    generation=7,
    protocol_type=None,
    protocol_name=None,
    leader=None,
    saved_ms=99,
)
CLASSIC_MEMBER = ClassicMemberRecord(
    member_id="m1",
    instance_id=None,
    client_id="c",
    client_host="/h",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocols=(("range", b"\x01\x02"), ("", b"")),
    assignment=b"xyz",
)
CLASSIC_GROUP = ClassicGroupRecord(
    group_id="g",
    generation=7,
    protocol_type="consumer",
    protocol_name="range",
    leader="m1",
    saved_ms=99,
    members=(
        CLASSIC_MEMBER,
        ClassicMemberRecord(
            member_id="mü",
            instance_id="i",
            client_id="",
            client_host="",
            session_timeout_ms=1,
            rebalance_timeout_ms=2,
            protocols=(),
            assignment=b"",
        ),
    ),
)
CONSUMER_GROUP = ConsumerGroupRecord(
    group_id="g",
    epoch=9,
    assignment_epoch=8,
    assignor="uniform",
    topics={"tö": TopicMetadata("tö", TOPIC_ID, 6)},
    saved_ms=99,
    members=ConsumerRoster(
        (
            ConsumerMember(
                member_id="m1",
                instance_id="i",
                rack_id="r",
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=45_000,
                topic_names=("tö", "u"),
                topic_regex="t.*",
                server_assignor="range",
                epoch=9,
                previous_epoch=8,
                state=MemberState.AWAITING,
                classic=ClassicMemberMetadata(10_000, (("range", b"\x00"),)),
                assigned=frozenset({TopicIdPartition(TOPIC_ID, 1), TopicIdPartition(TOPIC_ID, 0)}),
                revoking=frozenset({TopicIdPartition(TOPIC_ID, 5)}),
                target=frozenset(),
            ),
            ConsumerMember(
                member_id="m2",
                instance_id=None,
                rack_id=None,
                client_id="",
                client_host="",
                rebalance_timeout_ms=1,
                topic_names=(),
                topic_regex="",
                server_assignor=None,
                epoch=-2,
                previous_epoch=-1,
                state=MemberState.STABLE,
                classic=None,
                assigned=frozenset(),
                revoking=frozenset(),
                target=frozenset(),
            ),
        )
    ),
)
SECURED_CONSUMER_GROUP = replace(
    CONSUMER_GROUP,
    members=ConsumerRoster(
        replace(each, principal=Principal("ü")) for each in CONSUMER_GROUP.members
    ),
)
TXN = TxnRecord(
    transactional_id="t-1",
    producer_id=7,
    previous_producer_id=5,
    next_producer_id=9,
    epoch=32_767,
    last_epoch=3,
    timeout_ms=60_000,
    state=TxnState.PREPARE_ABORT,
    is_v2=True,
    partitions=frozenset({TopicPartition("b", 2), TopicPartition("a", 1), TopicPartition("a", 0)}),
    groups=frozenset({"h", "gü"}),
    start_ms=10,
    updated_ms=1 << 40,
)
NEW_TXN = TxnRecord(transactional_id="t-1", producer_id=1, timeout_ms=1, updated_ms=2)
OFFSET = CommittedOffset(41, 3, "nöte", 1_700_000_000_000, -1, TOPIC_ID)
TOPIC = TopicRecord("orders", TOPIC_ID, 3, {"b": "2", "a": "ü"}, 1_700_000_000_000)
CHECKPOINT = Checkpoint(
    100,
    5,
    17,
    {
        9_000: ProducerEntry(
            2, (BatchRange(0, 4, 90, 95, -1), BatchRange(5, 9, 95, 100, 77)), 1_700, 95
        ),
        9_001: ProducerEntry(-1, (), 0),
    },
)
CHECKPOINT_WITH_EPOCHS = Checkpoint(7, 5, 2, {}, (EpochStart(3, 0), EpochStart(5, 6)), {9_000: 4})
CURSOR = CursorRecord(
    mark_delete_position=Position(5, 120),
    properties={"größe": 1 << 40, "a": -3},
    deleted=((5, b"bitmap"), (9, b"")),
    batches=((Position(5, 122), b"x"), (Position(9, 0), b"yz")),
    generation=3,
)
MANAGED_LEDGER = ManagedLedgerRecord(
    managed_ledger_id=7, version=3, terminated_at=Position(5, 9), properties={"owner": "mé", "": ""}
)
NAMED_TOPIC = NamedTopicRecord(
    NamedTopicOptions(retain_values=True, element_expiry_ms=5, max_unconsumed_bytes=7),
    owns_log=True,
)
GROUP_KEY = GroupKey(TOPIC_ID, "gü")
SUBSCRIBER_GROUP = SubscriberGroupRecord(
    is_anonymous=True, created_ms=99, filter_name="m:ü", converter_name=""
)
LED_TOPIC = TOPIC._replace(partition_count=2, configs={}, leaders=(1, 1), has_one_leader=True)
CURSOR_KEY = CursorKey(TOPIC_ID, "sü")
OPEN_MANAGED_LEDGER = ManagedLedgerRecord(managed_ledger_id=7)
COMPACTED_MANAGED_LEDGER = ManagedLedgerRecord(
    managed_ledger_id=7,
    compacted=CompactedLedger(
        ledger_id=9, entries=5, size=120, horizon=Position(3, 2), compacted_ms=111
    ),
    compacting_id=10,
)
LEDGER = LedgerRecord(ledger_id=9, entries=5, size=50, closed_ms=1, max_timestamp_ms=4)
TIERED_LEDGER = replace(
    LEDGER,
    offload=OffloadContext(
        attempt=UUID(int=7), driver="d", location={"url": "u"}, completed_ms=8, primary_deleted=True
    ),
)

VALUES = [
    ("empty classic group", EMPTY_GROUP, lambda: encode_classic_group(EMPTY_GROUP),
     lambda row: decode_classic_group("g", row),
     "01000000000000006300000007ffffffffffffffffffffffff00000000"),
    ("classic group", CLASSIC_GROUP, lambda: encode_classic_group(CLASSIC_GROUP),
     lambda row: decode_classic_group("g", row),
     ("0100000000000000630000000700000008636f6e73756d65720000000572616e6765000000026d31"
     "00000002000000026d31ffffffff0000000163000000022f68000027100000ea600000000378797a"
     "000000020000000572616e67650000000201020000000000000000000000036dc3bc000000016900"
     "0000000000000000000001000000020000000000000000")),
    ("empty consumer group, version 2", ConsumerGroupRecord(group_id="g", saved_ms=99), None,
     lambda row: decode_consumer_group("g", row),
     "0200000000000000630000000000000000000000000000000000000000"),
    ("empty consumer group", ConsumerGroupRecord(group_id="g", saved_ms=99),
     lambda: encode_consumer_group(ConsumerGroupRecord(group_id="g", saved_ms=99)),
     lambda row: decode_consumer_group("g", row),
     "0300000000000000630000000000000000000000000000000000000000"),
    ("consumer group, version 2", CONSUMER_GROUP, None,
     lambda row: decode_consumer_group("g", row),
     ("020000000000000063000000090000000800000007756e69666f726d000000010000000374c3b60a"
     "1b2c3d4e5f60718293a4b5c6d7e8f90000000600000002000000026d310000000169000000017200"
     "00000163000000022f680000afc80000000900000008000000020000271000000001000000057261"
     "6e6765000000010000000003742e2a0000000572616e6765000000020000000374c3b60000000175"
     "000000010a1b2c3d4e5f60718293a4b5c6d7e8f9000000020000000000000001000000010a1b2c3d"
     "4e5f60718293a4b5c6d7e8f9000000010000000500000000000000026d32ffffffffffffffff0000"
     "00000000000000000001fffffffeffffffff00000000ffffffff00000000ffffffff000000000000"
     "00000000000000000000")),
    ("consumer group", SECURED_CONSUMER_GROUP,
     lambda: encode_consumer_group(SECURED_CONSUMER_GROUP),
     lambda row: decode_consumer_group("g", row),
     ("030000000000000063000000090000000800000007756e69666f726d000000010000000374c3b60a"
     "1b2c3d4e5f60718293a4b5c6d7e8f90000000600000002000000026d310000000169000000017200"
     "00000163000000022f680000afc80000000900000008000000020000271000000001000000057261"
     "6e6765000000010000000003742e2a0000000572616e6765000000020000000374c3b60000000175"
     "000000010a1b2c3d4e5f60718293a4b5c6d7e8f9000000020000000000000001000000010a1b2c3d"
     "4e5f60718293a4b5c6d7e8f900000001000000050000000000000002c3bc00000004557365720000"
     "00026d32ffffffffffffffff000000000000000000000001fffffffeffffffff00000000ffffffff"
     "00000000ffffffff0000000000000000000000000000000000000002c3bc0000000455736572")),
    ("named topic", NAMED_TOPIC, lambda: encode_named_topic(NAMED_TOPIC),
     lambda row: decode_named_topic(encode_topic_key(TOPIC_ID), row)[1],
     "0101000000000000000500000000000493e0000000000010000000000000000000070001"),
    ("subscriber group", SUBSCRIBER_GROUP, lambda: encode_group(SUBSCRIBER_GROUP),
     lambda row: decode_group(encode_subscriber_group_key(GROUP_KEY), row)[1],
     "0101000000000000006300046d3ac3bc0000"),
    ("channel of a subscriber group", ChannelRecord(6, 5, 2),
     lambda: encode_channel(ChannelRecord(6, 5, 2)),
     lambda row: decode_channel(encode_channel_key(GROUP_KEY, 3), row)[2],
     "01000000000000000600000000000000050000000000000002"),
    ("key of a channel", (GROUP_KEY, 3, ChannelRecord(0)),
     lambda: encode_channel_key(GROUP_KEY, 3),
     lambda key: decode_channel(key, encode_channel(ChannelRecord(0))),
     "6e616d65642d6368616e6e656c010a1b2c3d4e5f60718293a4b5c6d7e8f9000367c3bc00000003"),
    ("key of a group", "gü", lambda: encode_group_key("gü"), decode_group_key,
     "67726f75700167c3bc"),
    ("new transactional id", NEW_TXN, lambda: encode_txn(NEW_TXN),
     lambda row: decode_txn(encode_txn_key("t-1"), row),
     ("0100000000000000000001ffffffffffffffffffffffffffffffffffffffff00000001ffffffffff"
     "ffffff00000000000000020000000000000000")),
    ("transactional id", TXN, lambda: encode_txn(TXN),
     lambda row: decode_txn(encode_txn_key("t-1"), row),
     ("0103010000000000000007000000000000000500000000000000097fff00030000ea600000000000"
     "00000a00000100000000000000000300016100000000000161000000010001620000000200000002"
     "000367c3bc000168")),
    ("key of a transactional id", b"txn\x01t-1", lambda: encode_txn_key("t-1"), bytes,
     "74786e01742d31"),
    ("shard count", ("groups", 64), lambda: encode_count(64),
     lambda row: decode_count(encode_count_key("groups"), row),
     "0100000040"),
    ("key of a shard count", b"gateway/coordinator_shards\x01groups",
     lambda: encode_count_key("groups"), bytes,
     "676174657761792f636f6f7264696e61746f725f7368617264730167726f757073"),
    ("committed offset", OFFSET, lambda: encode_value(OFFSET), decode_value,
     ("010000000000000029000000030000018bcfe56800ffffffffffffffff0a1b2c3d4e5f60718293a4"
     "b5c6d7e8f96ec3b67465")),
    ("key of an offset", ("g", TopicPartition("tö", 5)),
     lambda: encode_key("g", TopicPartition("tö", 5)), decode_key,
     "6f666673657401000167000374c3b600000005"),
    ("key of a pending offset", ("g", (7, TopicPartition("t", 5))),
     lambda: encode_pending_key("g", (7, TopicPartition("t", 5))), decode_pending_key,
     "70656e64696e672d6f66667365740100000000000000076f66667365740100016700017400000005"),
    ("topic", TOPIC, lambda: encode_topic(TOPIC), decode_topic,
     ("017b22636f6e66696773223a7b2261223a225c7530306663222c2262223a2232227d2c2263726561"
     "7465645f6d73223a313730303030303030303030302c226964223a22306131623263336434653566"
     "3630373138323933613462356336643765386639222c226e616d65223a226f7264657273222c2270"
     "6172746974696f6e73223a337d")),
    ("namespace", NAMESPACE, lambda: NAMESPACE_ROWS.encode(NAMESPACE),
     lambda row: NAMESPACE_ROWS.decode(NAMESPACE_ROWS.encode_key("shop/eu"), row)[1],
     "01" + b'{"configs":{"retention.ms":"5"},"created_ms":99,"name":"shop/eu"}'.hex()),
    ("first timestamp", 41, lambda: encode_first_timestamp(41),
     lambda row: decode_first_timestamp(7, row), "010000000000000029"),
    ("manifest", 41, lambda: encode_manifest(41), decode_manifest, "010000000000000029"),
    ("log start", 41, lambda: encode_log_start(41), decode_log_start,
     "010000000000000029"),
    ("ledger summary", LedgerSummary(5, 1, 2, 3),
     lambda: encode_ledger_summary(LedgerSummary(5, 1, 2, 3)),
     lambda row: decode_ledger_summary(5, row),
     "01000000000000000100000000000000020000000000000003"),
    ("interval", Interval(1, 2, 3, 4, 5, -1), lambda: encode_interval(Interval(1, 2, 3, 4, 5, -1)),
     lambda row: decode_interval(1, row),
     ("010000000000000002000000000000000300000000000000040000000000000005ffffffffffffff"
     "ff")),
    ("checkpoint", CHECKPOINT, lambda: encode_checkpoint(CHECKPOINT), decode_checkpoint,
     ("02000000000000006400000000000000050000000000000011000000020000000000002328000200"
     "000000000006a4000000000000005f020000000000000004000000000000005a000000000000005f"
     "ffffffffffffffff0000000500000009000000000000005f0000000000000064000000000000004d"
     "0000000000002329ffff0000000000000000ffffffffffffffff00")),
    ("empty checkpoint", Checkpoint(0, -1, -1, {}),
     lambda: encode_checkpoint(Checkpoint(0, -1, -1, {})), decode_checkpoint,
     "020000000000000000ffffffffffffffffffffffffffffffff00000000"),
    ("checkpoint with epochs", CHECKPOINT_WITH_EPOCHS,
     lambda: encode_checkpoint(CHECKPOINT_WITH_EPOCHS), decode_checkpoint,
     ("03000000000000000700000000000000050000000000000002000000000000000200000003000000"
      "000000000000000005000000000000000600000001000000000000232800000004")),
    ("aborted transaction", AbortedTransaction(7, 1, 9, 1),
     lambda: encode_aborted(AbortedTransaction(7, 1, 9, 1)),
     lambda row: decode_aborted(9, row),
     "01000000000000000700000000000000010000000000000001"),
    ("cursor", CURSOR, lambda: encode_cursor(CURSOR), decode_cursor,
     ("0233b388ff0000000000000003000000000000000500000000000000780000000200000002000000"
     "02000000076772c3b6c39f6500000100000000000000000161fffffffffffffffd00000000000000"
     "05000000066269746d61700000000000000009000000000000000000000005000000000000007a00"
     "000001780000000000000009000000000000000000000002797a")),
    ("managed ledger", MANAGED_LEDGER, None, decode_managed_ledger,
     ("01000000000000000700000000000000030000000000000005000000000000000900000002000000"
     "056f776e6572000000036dc3a90000000000000000")),
    ("open managed ledger", OPEN_MANAGED_LEDGER, None, decode_managed_ledger,
     "0100000000000000070000000000000001fffffffffffffffefffffffffffffffe00000000"),
    ("managed ledger 2", OPEN_MANAGED_LEDGER,
     lambda: encode_managed_ledger(OPEN_MANAGED_LEDGER), decode_managed_ledger,
     ("0200000000000000070000000000000001fffffffffffffffefffffffffffffffe0000000000"
     "ffffffffffffffff")),
    ("compacted managed ledger", COMPACTED_MANAGED_LEDGER,
     lambda: encode_managed_ledger(COMPACTED_MANAGED_LEDGER), decode_managed_ledger,
     ("0200000000000000070000000000000001fffffffffffffffefffffffffffffffe0000000001"
     "0000000000000009000000000000000500000000000000780000000000000003"
     "0000000000000002000000000000006f000000000000000a")),
    ("ledger, version 1", LEDGER, None, lambda row: decode_ledger(9, row),
     "010000000000000005000000000000003200000000000000010000000000000004"),
    ("ledger", LEDGER, lambda: encode_ledger(LEDGER), lambda row: decode_ledger(9, row),
     ("0200000000000000050000000000000032000000000000000100000000000000"
      "0400")),
    ("tiered ledger", TIERED_LEDGER, lambda: encode_ledger(TIERED_LEDGER),
     lambda row: decode_ledger(9, row),
     ("0200000000000000050000000000000032000000000000000100000000000000"
      "040100000000000000000000000000000007000164000000010000000375726c"
      "0000000175000000000000000801")),
    ("topic with one leader", LED_TOPIC, lambda: encode_topic(LED_TOPIC), decode_topic,
     ("017b22636f6e66696773223a7b7d2c22637265617465645f6d73223a313730303030303030303030"
     "302c226964223a223061316232633364346535663630373138323933613462356336643765386639"
     "222c226c656164657273223a5b312c315d2c226e616d65223a226f7264657273222c226f6e655f6c"
     "6561646572223a747275652c22706172746974696f6e73223a327d")),
    ("cursors of a topic", (CURSOR_KEY, 3), lambda: CURSOR_ROWS.encode(3),
     lambda row: CURSOR_ROWS.decode(CURSOR_ROWS.encode_key(CURSOR_KEY), row), "0100000003"),
    ("key of cursors", (CURSOR_KEY, 3), lambda: CURSOR_ROWS.encode_key(CURSOR_KEY),
     lambda key: CURSOR_ROWS.decode(key, CURSOR_ROWS.encode(3)),
     "430a1b2c3d4e5f60718293a4b5c6d7e8f973c3bc"),
    ("counter", 41, lambda: encode_counter(41), decode_counter,
     "010000000000000029"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "encode", "decode", "golden"),
    [pytest.param(*rest, id=name) for name, *rest in VALUES],
)
def test_a_row_is_written_and_read_as_ever(
    value: object,
    encode: Callable[[], bytes] | None,
    decode: Callable[[bytes], object],
    golden: str,
) -> None:
    """Without `encode` the layout is one that is read only."""
    if encode is not None:
        assert golden == encode().hex()
    assert value == decode(bytes.fromhex(golden))


async def test_rows_without_a_version_are_written_and_read_as_ever() -> None:
    """The block of producer ids is 8 bytes, the settings of a name are JSON."""
    engine = FaultyEngine(None)
    key = b"gateway/test/" + "ü".encode()
    async with LedgerStore.open(None, engine=engine) as store:
        assert 0 == await ProducerIds(store).next_id()
        await SettingsTable[float](store, b"gateway/test/").put("ü", {"b": 1.5, "ä": 2})
        assert (1_000).to_bytes(8, "big") == store.get_row(PRODUCER_IDS_KEY)
        assert b'{"b": 1.5, "\\u00e4": 2}' == store.get_row(key)
        await store.put_rows([(PRODUCER_IDS_KEY, (5_000).to_bytes(8, "big"))])
        await store.put_rows([(key, json.dumps({"c": 3}).encode())])
        assert 5_000 == await ProducerIds(store).next_id()
        table = SettingsTable[float](store, b"gateway/test/")
        table.load()
        assert {"ü": {"c": 3}} == table.all

"""What of an answer is compared, and what only two servers' accidents would differ in."""

from uuid import UUID

from compat_tests.differential.connection import Closed, Silent
from compat_tests.differential.masks import Masks
from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.gateway.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdResponse

BEGUN_MS = 1_000


def producer(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id)


def test_ids_are_numbered_in_the_order_of_first_sight() -> None:
    masks = Masks(BEGUN_MS)
    masked = [masks.plain(producer(one), 4)["producer_id"] for one in (70, 0, 70, -1)]
    assert ["producer 1", "producer 2", "producer 1", "-1"] == masked


def test_an_answer_has_the_fields_of_its_version_and_no_accidents() -> None:
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="somewhere", port=9)],
        cluster_id="abc",
        topics=[
            MetadataResponseTopic(name="b", topic_id=UUID(int=7)),
            MetadataResponseTopic(name="__own"),
            MetadataResponseTopic(name="a", topic_id=UUID(int=8)),
        ],
    )
    plain = Masks(BEGUN_MS).plain(answer, 12)
    assert {"1": {"node_id": 1, "host": "here", "port": "here", "rack": None}} == plain["brokers"]
    assert "cluster 1" == plain["cluster_id"]
    assert ["a", "b"] == list(plain["topics"])
    assert "topic 1" == plain["topics"]["a"]["topic_id"]
    assert "error_code" not in plain
    assert "topic_id" not in Masks(BEGUN_MS).plain(answer, 9)["topics"]["a"]


def test_records_are_compared_whole_but_for_ids_and_times_of_the_run() -> None:
    who = BatchProducer(55, 2, 3)
    old = build_batch([NewRecord(b"v", key=b"k", timestamp=999)], producer=who)
    new = build_batch([NewRecord(b"w", timestamp=1_000)], base_offset=1)
    partition = PartitionData(records=bytes(old + new) + b"rest")
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    plain = Masks(BEGUN_MS).plain(answer, 12)
    first, second, rest = plain["responses"]["t"]["partitions"]["0"]["records"]
    assert ("producer 1", 2, 3, 999) == (
        first["producer"], first["epoch"], first["sequence"], first["max_timestamp"],
    )  # fmt: skip
    assert [(999, b"k", b"v")] == first["records"]
    assert ("-1", 1, "now", [("now", b"", b"w")]) == (
        second["producer"], second["base_offset"], second["max_timestamp"], second["records"],
    )  # fmt: skip
    assert "a piece" == rest


def test_no_answer_is_an_answer() -> None:
    masks = Masks(BEGUN_MS)
    assert ("closed", "silent") == (masks.plain(Closed(), 0), masks.plain(Silent(), 0))

"""Topics by the bytes of the wire."""

import sys

from kledger.gateway.metadata.partition_lookup import TopicLookup
from kledger.ledger import LedgerStore
from kledger.topics import TopicRegistry


async def test_lookup_follows_the_registry() -> None:
    async with LedgerStore.open(None) as store:
        registry = await TopicRegistry.open(store)
        lookup = TopicLookup(registry)
        assert lookup.by_name(b"t") is None
        first = await registry.create("t")
        for _ in range(2):
            assert lookup.by_name(b"t") is first
            assert lookup.by_id(first.id.bytes) is first
        await registry.delete("t")
        assert lookup.by_name(b"t") is None
        assert lookup.by_id(first.id.bytes) is None
        second = await registry.create("t")
        assert lookup.by_name(b"t") is second
        assert lookup.by_id(first.id.bytes) is None


async def test_bytes_of_a_request_are_not_kept() -> None:
    """They lay among the objects of the partition that it opened, and pinned their memory."""
    async with LedgerStore.open(None) as store:
        registry = await TopicRegistry.open(store)
        lookup = TopicLookup(registry)
        topic = await registry.create("orders")
        name, topic_id = bytes(bytearray(b"orders")), topic.id.bytes
        before = sys.getrefcount(name), sys.getrefcount(topic_id)
        assert lookup.by_name(name) is lookup.by_id(topic_id) is topic
        assert before == (sys.getrefcount(name), sys.getrefcount(topic_id))


async def test_name_of_sixteen_bytes_is_no_id() -> None:
    async with LedgerStore.open(None) as store:
        registry = await TopicRegistry.open(store)
        lookup = TopicLookup(registry)
        topic = await registry.create("sixteen-bytes-xx")
        assert lookup.by_name(b"sixteen-bytes-xx") is topic
        assert lookup.by_id(b"sixteen-bytes-xx") is None


async def test_name_that_is_no_text_is_unknown() -> None:
    async with LedgerStore.open(None) as store:
        assert TopicLookup(await TopicRegistry.open(store)).by_name(b"\xff\xfe") is None

"""Resent batches: which are stored, and their positions."""

import pytest

from kledger.native.broker import ProducerLink, SendReceipt
from kledger.native.errors import InvalidArgument, NotInSequence, Unavailable
from kledger.native.server import duplicate_batches
from kledger.topics.config.topic_config import TopicDefaults
from tests.batches.words import batch
from tests.native.serving import Link, Serving, serving
from tests.topics.words import append


def numbered(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytearray:
    """A batch of one record."""
    return batch(str(sequence), producer=producer_id, epoch=epoch, sequence=sequence)


async def opened(serving_: Serving) -> ProducerLink:
    await serving_.log()
    return await serving_.service.open_producer("orders", 0, name="", on_ended=Link().on_ended)


async def send(link: ProducerLink, *sequences: int) -> list[SendReceipt]:
    return [await link.send(numbered(each)) for each in sequences]


async def again(link: ProducerLink, *sequences: int) -> list[SendReceipt]:
    return [await link.send(numbered(each), is_resent=True) for each in sequences]


async def test_batches_older_than_the_partition_remembers_are_found_in_the_log() -> None:
    """A hundred were in flight beside others; the partition remembers five."""
    async with serving() as serving_:
        link = await opened(serving_)
        sent = []
        for sequence in range(100):
            sent += await send(link, sequence)
            await serving_.append("other")
        new = await opened(serving_)
        assert sent == await again(new, *range(100))
        assert 200 == (await serving_.log()).high_watermark


async def test_search_spans_ledgers() -> None:
    async with serving() as serving_:
        link = await opened(serving_)
        ledger = (await serving_.log()).managed_ledger
        sent = []
        for sequence in range(12):
            sent += await send(link, sequence)
            await ledger.roll_over()
        assert sent == await again(await opened(serving_), *range(12))


async def test_batch_beyond_the_search_limit_is_not_appended_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duplicate_batches, "SEARCH_ENTRIES_MAX", 4)
    monkeypatch.setattr(duplicate_batches, "SEARCH_STEP_ENTRIES", 2)
    async with serving() as serving_:
        sent = await send(await opened(serving_), *range(10))
        new = await opened(serving_)
        with pytest.raises(Unavailable, match="among the 4 entries"):
            await again(new, 0)
        assert sent[1:] == await again(new, *range(1, 10))
        assert 10 == (await serving_.log()).high_watermark


async def test_resent_batch_is_found_although_it_would_be_refused_now() -> None:
    """The limit was lowered between the first time and the second."""
    async with serving() as serving_:
        sent = await send(await opened(serving_), *range(8))
        registry = serving_.topics.registry
        await registry.alter_configs("orders", {"max.message.bytes": "50"})
        new = await opened(serving_)
        assert sent == await again(new, *range(8))
        for sequence in (7, 8):
            with pytest.raises(InvalidArgument):
                await new.send(numbered(sequence))
        with pytest.raises(InvalidArgument):
            await new.send(numbered(8), is_resent=True)


async def test_batch_behind_a_gap_is_not_stored() -> None:
    async with serving() as serving_:
        link = await opened(serving_)
        await send(link, *range(7))
        with pytest.raises(NotInSequence, match="base sequence 9, expected 7"):
            await again(await opened(serving_), 9)


async def test_batch_of_another_epoch_is_not_looked_for() -> None:
    async with serving() as serving_:
        link = await opened(serving_)
        await send(link, *range(7))
        with pytest.raises(NotInSequence):
            await link.send(numbered(3, epoch=1))


async def test_producer_that_may_have_been_forgotten_is_not_believed() -> None:
    """Its batch may be stored: appending it could store it twice."""
    async with serving(defaults=TopicDefaults(producers_max=16)) as serving_:
        log = await serving_.log()
        link = await opened(serving_)
        sent = await send(link, 0)
        for each in range(16):
            await append(log, numbered(0, producer_id=100 + each))
        assert 7 not in log.producers()
        new = await opened(serving_)
        with pytest.raises(Unavailable, match="forgotten producer 7"):
            await again(new, 0)
        # A batch that was never sent is appended, as in Kafka.
        assert sent[0].base_offset < (await send(new, 5))[0].base_offset

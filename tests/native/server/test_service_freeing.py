"""A partition that is closed leaves nothing in memory."""

from tests.freed import without_collection
from tests.native.serving import Link, ack, serving, ticks


async def test_partition_closed_as_idle_is_freed() -> None:
    """Its memory must not wait for a garbage collection."""
    async with serving() as opened:
        await opened.append("a", "b")
        link = Link()
        consumer = await opened.consume(link)
        await ticks()
        await consumer.acknowledge([ack(link.deliveries[0])])
        await consumer.close()
        log = await opened.log()
        with without_collection() as freed:
            freed.watch(log=log, ledger=log.managed_ledger, cursor=log.managed_ledger.cursors["s"])
            del log, consumer
            await opened.topics.registry.all()[0].close_partition(0)
            await ticks()
            assert [] == freed.left()

"""What one fetch session reads, waits for and sends."""

from kledger.gateway.wire.messages.k01_fetch import ForgottenTopic
from tests.gateway.running import running_gateway
from tests.gateway.session_client import BY_NAME, Session, write


async def test_forgotten_partition_is_not_sent_again() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=2)
        session = Session(client)
        await session.fetch({0: 0, 1: 0})
        request = session.request()
        request.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[1])]
        session.took(await client.ask(request, BY_NAME))
        await write(client, b"a", partition=0)
        await write(client, b"b", partition=1)
        assert [0] == list(await session.fetch())


async def test_what_was_not_fetched_on_is_returned_again() -> None:
    """The client's offset stays where it was said last, until it says another one."""
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        session = Session(client)
        await write(client, b"first")
        first = await session.fetch({0: 0})
        assert first == await session.fetch()
        assert {} == await session.fetch({0: 1})
        await write(client, b"second")
        assert b"second" in (await session.fetch())[0][2]


async def test_a_waiting_fetch_of_a_session_listens_to_every_partition() -> None:
    async with running_gateway() as gateway, gateway.client() as client, gateway.client() as other:
        await gateway.create_topic(partitions=50)
        session = Session(client)
        await session.fetch(dict.fromkeys(range(50), 0))
        for partition in (49, 0, 17, 49):
            offset = int(partition == 49 and session.epoch > 3)
            await session.fetch_later(gateway, {partition: offset})
            await write(other, b"x%d" % partition, partition)
            found = await session.answer()
            assert b"x%d" % partition in found[partition][2]
            await session.fetch({partition: offset + 1})


async def test_waiting_costs_nothing_per_partition_that_is_quiet() -> None:
    """Counted in looks at logs: after the first fetch a quiet partition is not looked at."""
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic(partitions=20)
        session = Session(client)
        await session.fetch(dict.fromkeys(range(20), 0))
        log = topic.partition(3)
        assert log is not None
        listeners = log._listeners._listeners
        before = list(listeners)
        assert 1 == len(before)
        for _ in range(5):
            assert {} == await session.fetch()
        assert before == list(listeners)


async def test_moved_log_start_is_sent_without_records() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        await write(client, b"a")
        session = Session(client)
        await session.fetch({0: 1})
        assert {} == await session.fetch()
        await (await topic.open_partition(0)).delete_records(1)
        assert {0: (0, 1, b"")} == await session.fetch()
        assert {} == await session.fetch()


async def test_partitions_alternate_when_a_response_is_too_small_for_all() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic(partitions=4)
        for partition in range(4):
            await write(client, b"x" * 1_000, partition)
        session = Session(client)
        seen: list[int] = []
        offsets: dict[int, int] | None = dict.fromkeys(range(4), 0)
        for _ in range(8):
            found = await session.fetch(offsets, max_bytes=1_200)
            seen += [index for index, (_, _, records) in found.items() if records]
            offsets = None
        assert [0, 1, 2, 3, 0, 1, 2, 3] == seen


async def test_topic_that_is_created_again_is_found_by_its_name() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        session = Session(client)
        await session.fetch({0: 0})
        await session.fetch_later(gateway)
        await gateway.services.registry.delete("t")
        assert {0: (3, -1, b"")} == await session.answer()
        assert {0: (3, -1, b"")} == await session.fetch()
        await gateway.create_topic()
        assert {0: (0, 0, b"")} == await session.fetch()
        await write(client, b"again")
        assert b"again" in (await session.fetch())[0][2]


async def test_a_session_continues_over_another_connection() -> None:
    async with running_gateway() as gateway, gateway.client() as client, gateway.client() as other:
        await gateway.create_topic()
        session = Session(client)
        await session.fetch({0: 0})
        session.client = other
        assert {} == await session.fetch()


async def test_a_connection_that_goes_leaves_its_session_to_be_continued() -> None:
    async with running_gateway() as gateway, gateway.client() as other:
        topic = await gateway.create_topic()
        async with gateway.client() as client:
            session = Session(client)
            await session.fetch({0: 0})
            await session.fetch_later(gateway)
        session.client, session.epoch = other, session.epoch + 1
        await write(other, b"x")
        assert b"x" in (await session.fetch())[0][2]
        log = topic.partition(0)
        assert log is not None

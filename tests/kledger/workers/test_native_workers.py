"""Native clients of real workers, of which one is killed."""

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

import kledger
import kledger.sync
from kledger.cli import run
from tests.kledger.workers.running_workers import RunningWorkers

ANY = "127.0.0.1:0"
HALF = 400


def values(numbers: range) -> list[bytes]:
    return [b"%d" % each for each in numbers]


@pytest.mark.slow
async def test_clients_go_on_behind_a_worker_that_was_killed(tmp_path: Path) -> None:
    """Every message that was sent is received, and stored once."""
    with RunningWorkers("--data", str(tmp_path), "--native", ANY) as running:
        processes = dict(running.wait_next_worker() for _ in range(2))
        async with kledger.connect(f"kledger://{running.ready['native']}") as client:
            await client.create_topic("orders", partitions=4)
            view = await client.create_table_view("orders")
            jobs = await client.named_topic("jobs", channel_count=3)
            subscriber = await jobs.create_subscriber(group="g")
            publisher = await jobs.create_publisher()
            producer = await client.create_producer("orders")
            consumer = await client.subscribe(
                "orders", "s", consumer_type="shared", initial_position="earliest"
            )
            seen: set[bytes] = set()

            async def consume(count: int) -> None:
                while len(seen) < count:
                    message = await consumer.receive()
                    assert message.value is not None
                    seen.add(message.value)
                    with suppress(kledger.Unavailable):  # it is redelivered
                        await consumer.acknowledge(message)

            async def produce(numbers: range) -> None:
                sending = [
                    asyncio.ensure_future(producer.send(value, key=value.decode()))
                    for value in values(numbers)
                ]
                await asyncio.gather(*sending)

            await asyncio.gather(produce(range(HALF)), consume(HALF))
            await publisher.publish(b"before")
            sending = asyncio.ensure_future(produce(range(HALF, 2 * HALF)))
            for process_id in processes.values():
                os.kill(process_id, signal.SIGKILL)
                await asyncio.to_thread(running.wait_next_worker)
            await asyncio.gather(sending, consume(2 * HALF))
            await publisher.publish(b"behind")
            for expected in (b"before", b"behind"):
                element = await subscriber.receive()
                assert element is not None
                assert expected == element.value
            assert set(values(range(2 * HALF))) == seen
            await view.refresh()
            assert 2 * HALF == len(view)
            stats = await client.topic_stats("orders")
            assert 2 * HALF == sum(each.end_offset for each in stats.partitions)
            for each in (view, subscriber, publisher, producer, consumer):
                await each.close()
        assert 0 == running.stop()


def test_commands_work_on_topics_of_several_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunningWorkers("--data", str(tmp_path), "--native", ANY) as running:
        address = running.ready["native"]
        with kledger.sync.connect(f"kledger://{address}") as client:
            client.create_topic("orders", partitions=4)
            with client.create_producer("orders") as producer:
                for value in values(range(40)):
                    producer.send(value, key=value.decode())

        def output(*words: str) -> str:
            assert 0 == run([*words, "--native", address])
            return capsys.readouterr().out

        output("subscription", "create", "orders", "s", "--from", "earliest")
        found = json.loads(output("subscription", "stats", "orders", "s", "--json"))
        assert 40 == found["backlog"]
        output("topic", "forward", "orders", "copies", "--until-caught-up")
        for topic in ("orders", "copies"):
            table = json.loads(output("topic", "table", topic, "--json"))
            assert {str(each) for each in range(40)} == {each["key"] for each in table["rows"]}
        output("topic", "delete", "orders")
        assert "copies\n" == output("topic", "list")
        assert 0 == running.stop()

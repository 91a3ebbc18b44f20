"""Looking for new partitions."""

from kledger.native.broker import TopicInfo
from kledger.native.client.partition_watch import watch_partitions
from kledger.native.errors import Unavailable
from tests.native.client_builders import rig
from tests.native.recording_broker import RecordingBroker


class GrowingBroker(RecordingBroker):
    """Its topic has as many partitions as it is told."""

    partition_count = 1

    async def lookup(self, topic: str, *, create: bool) -> TopicInfo:
        self.fail_if_told()
        assert not create, "nobody wants it made anew"
        return TopicInfo(topic, self.partition_count)


async def test_new_partitions_are_told_once() -> None:
    broker = GrowingBroker()
    async with rig(broker) as rig_:
        grown: list[range] = []
        failures = [Unavailable("not now")]

        async def grow(new: range) -> None:
            if failures:
                raise failures.pop()
            grown.append(new)

        rig_.services.supervisor.spawn(watch_partitions(rig_.services, "orders", 1, grow), "watch")
        period_ms = rig_.services.partition_refresh_ms
        await rig_.pass_ms(period_ms)
        assert [] == grown
        broker.partition_count = 3
        await rig_.pass_ms(period_ms - 1)
        assert [] == grown
        await rig_.pass_ms(1)  # cannot be taken in yet
        await rig_.pass_ms(period_ms)
        assert [range(1, 3)] == grown
        await rig_.pass_ms(period_ms)
        broker.fail_next = Unavailable("away")
        broker.partition_count = 4
        await rig_.pass_ms(period_ms)
        await rig_.pass_ms(period_ms)
        assert [range(1, 3), range(3, 4)] == grown

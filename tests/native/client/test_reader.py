"""The position of a reader; its guarantees are tested by the contract."""

from kledger.ledger import Position
from kledger.native.broker import EARLIEST, RecordLocation, RecordPosition
from kledger.native.client.reader import latest_positions
from tests.native.recording_broker import RecordingBroker


class FilledBroker(RecordingBroker):
    """Only partition 1 has a record."""

    async def last_record(self, topic: str, partition: int) -> RecordLocation:
        if partition == 1:
            return RecordLocation(RecordPosition(Position(5, 7), 3), 4, 9)
        return await super().last_record(topic, partition)


async def test_reader_at_latest_starts_behind_the_newest_record() -> None:
    found = await latest_positions(FilledBroker(), "orders", range(3))
    assert {0: EARLIEST, 1: RecordPosition(Position(5, 7), 3), 2: EARLIEST} == found

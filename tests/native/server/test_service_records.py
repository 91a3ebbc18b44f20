"""Records by position and by offset, as a native client asks for them."""

import pytest

from kledger.ledger import Position
from kledger.native.broker import NO_RECORD, RecordLocation, RecordPosition
from kledger.native.errors import InvalidArgument, TopicNotFound
from tests.native.serving import serving


async def test_records_are_found_by_position_and_by_offset() -> None:
    async with serving() as serving_:
        service = serving_.service
        await serving_.log()
        assert NO_RECORD == await service.last_record("orders", 0)
        location = RecordLocation(RecordPosition(await serving_.append("a", "b"), 1), 2, 1)
        assert location == await service.last_record("orders", 0)
        assert location == await service.record_at("orders", 0, 1)
        assert 1 == await service.offset_of("orders", 0, location.record_position)


async def test_what_does_not_exist_is_refused() -> None:
    async with serving() as serving_:
        await serving_.log()
        record_position = RecordPosition(Position(0, 0))
        with pytest.raises(InvalidArgument, match="expected 0 to -1"):
            await serving_.service.record_at("orders", 0, 0)
        with pytest.raises(InvalidArgument, match="has no record"):
            await serving_.service.offset_of("orders", 0, record_position)
        with pytest.raises(TopicNotFound):
            await serving_.service.record_at("missing", 0, 0)
        with pytest.raises(InvalidArgument):
            await serving_.service.offset_of("orders", 1, record_position)
        with pytest.raises(InvalidArgument):
            await serving_.service.offset_of("orders", 0, RecordPosition(Position(0, 1 << 63)))

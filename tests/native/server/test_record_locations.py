"""Records by place and by offset."""

import pytest

from kledger.ledger import Position
from kledger.native.broker import NO_RECORD, RecordLocation, RecordPosition
from kledger.native.errors import InvalidArgument, TopicNotFound
from tests.native.serving import serving


async def test_every_record_has_one_place_and_one_offset() -> None:
    async with serving() as serving_:
        service, log = serving_.service, await serving_.log()
        assert NO_RECORD == await service.last_record("orders", 0)
        places = []
        for values in (["a"], ["b", "c", "d"], ["e", "f"]):
            at = await serving_.append(*values)
            places += [(RecordPosition(at, index), len(values)) for index in range(len(values))]
            await log.managed_ledger.roll_over()
        for offset, (record_position, size) in enumerate(places):
            found = await service.record_at("orders", 0, offset)
            assert RecordLocation(record_position, size, offset) == found
            assert offset == await service.offset_of("orders", 0, record_position)
        assert found == await service.last_record("orders", 0)
        whole = RecordPosition(places[1][0].position)
        assert 1 == await service.offset_of("orders", 0, whole)


@pytest.mark.parametrize("offset", [1, 5, 1 << 62])
async def test_offset_without_a_record_is_refused(offset: int) -> None:
    async with serving() as serving_:
        await serving_.append("a", "b", "c", "d", "e")
        await (await serving_.log()).delete_records(2)
        with pytest.raises(InvalidArgument, match="expected 2 to 4"):
            await serving_.service.record_at("orders", 0, offset)


@pytest.mark.parametrize(("entry_id", "index"), [(0, 0), (1, 2), (2, 0), (-1, 0), (1 << 62, -1)])
async def test_place_without_a_record_is_refused(entry_id: int, index: int) -> None:
    async with serving() as serving_:
        await serving_.append("a")
        at = await serving_.append("b", "c")
        await (await serving_.log()).delete_records(1)
        record_position = RecordPosition(Position(at.ledger_id, entry_id), index)
        with pytest.raises(InvalidArgument, match="has no record"):
            await serving_.service.offset_of("orders", 0, record_position)


async def test_what_does_not_exist_is_refused() -> None:
    async with serving() as serving_:
        await serving_.log()
        record_position = RecordPosition(Position(0, 0))
        with pytest.raises(TopicNotFound):
            await serving_.service.record_at("missing", 0, 0)
        with pytest.raises(InvalidArgument):
            await serving_.service.offset_of("orders", 1, record_position)
        with pytest.raises(InvalidArgument):
            await serving_.service.offset_of("orders", 0, RecordPosition(Position(0, 1 << 63)))

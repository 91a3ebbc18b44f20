"""New entries wait in the buffer for the visibility filter and for room."""

from kledger.ledger import EARLIEST, Cursor, Entry
from kledger.subscriptions.dispatch.dispatcher import DispatchBuffer
from tests.subscriptions.partition_fixture import PartitionFixture
from tests.subscriptions.switchable_filter import SwitchableFilter


class BufferFixture:
    """Entries 0 to 5 that were read from a cursor, and a filter that settles some of them."""

    def __init__(self, cursor: Cursor, entries: list[Entry]) -> None:
        self.cursor = cursor
        self.entries = entries
        self.positions = [each.position for each in entries]
        self.visibility_filter = SwitchableFilter()
        self.changes = 0
        self.buffer = DispatchBuffer(cursor, self.visibility_filter, changed=self._count)

    def _count(self) -> None:
        self.changes += 1

    def fill(self) -> None:
        self.buffer.fill(self.entries, self.cursor.revision.number)

    @property
    def ready(self) -> list[int]:
        return [self.entries.index(each) for each in self.buffer.ready]

    @property
    def acknowledged(self) -> list[int]:
        state = self.cursor.state
        return [number for number in range(6) if state.is_acknowledged(self.positions[number])]


async def buffer_fixture(room: PartitionFixture) -> BufferFixture:
    for number in range(6):
        await room.add(f"{number}")
    cursor = await room.ledger.open_cursor("s", initial=EARLIEST)
    return BufferFixture(cursor, await cursor.read(6))


async def test_visible_entries_are_ready_at_once(room: PartitionFixture) -> None:
    fixture = await buffer_fixture(room)
    assert not fixture.buffer
    fixture.fill()
    assert fixture.buffer
    assert list(range(6)) == fixture.ready
    assert {} == fixture.visibility_filter.listeners, "every entry is settled"


async def test_unsettled_entry_holds_up_all_behind_it(room: PartitionFixture) -> None:
    fixture = await buffer_fixture(room)
    fixture.visibility_filter.at = fixture.positions[2]
    fixture.fill()
    assert [0, 1] == fixture.ready
    fixture.buffer.ready = []
    assert fixture.buffer, "something waits"
    fixture.visibility_filter.move(fixture.positions[2])
    assert 0 == fixture.changes, "nothing more is known"
    fixture.visibility_filter.move(fixture.positions[4])
    assert 1 == fixture.changes
    assert [] == fixture.ready, "it only says so"
    fixture.buffer.refresh()
    assert [2, 3] == fixture.ready
    fixture.visibility_filter.move()
    fixture.buffer.refresh()
    assert [2, 3, 4, 5] == fixture.ready
    assert (2, {}) == (fixture.changes, fixture.visibility_filter.listeners)


async def test_hidden_entry_is_acknowledged_once_settled(room: PartitionFixture) -> None:
    fixture = await buffer_fixture(room)
    fixture.visibility_filter.at = fixture.positions[3]
    fixture.visibility_filter.hidden = {fixture.positions[number] for number in (1, 3, 5)}
    fixture.fill()
    assert ([0, 2], [1]) == (fixture.ready, fixture.acknowledged)
    fixture.visibility_filter.move()
    fixture.buffer.refresh()
    assert ([0, 2, 4], [1, 3, 5]) == (fixture.ready, fixture.acknowledged)


async def test_entries_acknowledged_meanwhile_are_removed(room: PartitionFixture) -> None:
    fixture = await buffer_fixture(room)
    fixture.visibility_filter.at = fixture.positions[2]
    fixture.fill()
    fixture.cursor.acknowledge_nowait([], upto=fixture.positions[0])
    await fixture.cursor.delete([fixture.positions[2], fixture.positions[4]])
    fixture.buffer.refresh()
    assert [1] == fixture.ready
    fixture.visibility_filter.move()
    fixture.buffer.refresh()
    assert [1, 3, 5] == fixture.ready


async def test_buffer_is_empty_when_all_unsettled_entries_are_acknowledged(
    room: PartitionFixture,
) -> None:
    fixture = await buffer_fixture(room)
    fixture.visibility_filter.at = EARLIEST
    fixture.fill()
    await fixture.cursor.clear_backlog()
    fixture.buffer.refresh()
    assert not fixture.buffer
    assert {} == fixture.visibility_filter.listeners


async def test_hidden_entries_read_before_a_revision_are_not_acknowledged(
    room: PartitionFixture,
) -> None:
    fixture = await buffer_fixture(room)
    fixture.visibility_filter.at = EARLIEST
    fixture.fill()
    fixture.visibility_filter.hidden = set(fixture.positions)
    await fixture.cursor.rewind()
    fixture.visibility_filter.at = fixture.positions[3]
    fixture.buffer.refresh()
    assert [] == fixture.acknowledged
    fixture.cursor.revision.start()
    fixture.visibility_filter.move()
    fixture.buffer.refresh()
    assert [] == fixture.acknowledged, "nor while one runs"


async def test_clear_empties_the_buffer_and_removes_the_listener(room: PartitionFixture) -> None:
    fixture = await buffer_fixture(room)
    fixture.visibility_filter.at = fixture.positions[2]
    fixture.fill()
    assert fixture.visibility_filter.listeners
    fixture.buffer.clear()
    assert not fixture.buffer
    assert {} == fixture.visibility_filter.listeners
    fixture.buffer.clear()

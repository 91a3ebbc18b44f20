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


async def buffer_fixture(fixture: PartitionFixture) -> BufferFixture:
    for number in range(6):
        await fixture.add(f"{number}")
    cursor = await fixture.ledger.open_cursor("s", initial=EARLIEST)
    return BufferFixture(cursor, await cursor.read(6))


async def test_visible_entries_are_ready_at_once(fixture: PartitionFixture) -> None:
    buffered = await buffer_fixture(fixture)
    assert not buffered.buffer
    buffered.fill()
    assert buffered.buffer
    assert list(range(6)) == buffered.ready
    assert {} == buffered.visibility_filter.listeners, "every entry is settled"


async def test_unsettled_entry_holds_up_all_behind_it(fixture: PartitionFixture) -> None:
    buffered = await buffer_fixture(fixture)
    buffered.visibility_filter.at = buffered.positions[2]
    buffered.fill()
    assert [0, 1] == buffered.ready
    buffered.buffer.ready = []
    assert buffered.buffer, "something waits"
    buffered.visibility_filter.move(buffered.positions[2])
    assert 0 == buffered.changes, "nothing more is known"
    buffered.visibility_filter.move(buffered.positions[4])
    assert 1 == buffered.changes
    assert [] == buffered.ready, "it only says so"
    buffered.buffer.refresh()
    assert [2, 3] == buffered.ready
    buffered.visibility_filter.move()
    buffered.buffer.refresh()
    assert [2, 3, 4, 5] == buffered.ready
    assert (2, {}) == (buffered.changes, buffered.visibility_filter.listeners)


async def test_hidden_entry_is_acknowledged_once_settled(fixture: PartitionFixture) -> None:
    buffered = await buffer_fixture(fixture)
    buffered.visibility_filter.at = buffered.positions[3]
    buffered.visibility_filter.hidden = {buffered.positions[number] for number in (1, 3, 5)}
    buffered.fill()
    assert ([0, 2], [1]) == (buffered.ready, buffered.acknowledged)
    buffered.visibility_filter.move()
    buffered.buffer.refresh()
    assert ([0, 2, 4], [1, 3, 5]) == (buffered.ready, buffered.acknowledged)


async def test_entries_acknowledged_meanwhile_are_removed(fixture: PartitionFixture) -> None:
    buffered = await buffer_fixture(fixture)
    buffered.visibility_filter.at = buffered.positions[2]
    buffered.fill()
    buffered.cursor.acknowledge_nowait([], upto=buffered.positions[0])
    await buffered.cursor.delete([buffered.positions[2], buffered.positions[4]])
    buffered.buffer.refresh()
    assert [1] == buffered.ready
    buffered.visibility_filter.move()
    buffered.buffer.refresh()
    assert [1, 3, 5] == buffered.ready


async def test_buffer_is_empty_when_all_unsettled_entries_are_acknowledged(
    fixture: PartitionFixture,
) -> None:
    buffered = await buffer_fixture(fixture)
    buffered.visibility_filter.at = EARLIEST
    buffered.fill()
    await buffered.cursor.clear_backlog()
    buffered.buffer.refresh()
    assert not buffered.buffer
    assert {} == buffered.visibility_filter.listeners


async def test_hidden_entries_read_before_a_revision_are_not_acknowledged(
    fixture: PartitionFixture,
) -> None:
    buffered = await buffer_fixture(fixture)
    buffered.visibility_filter.at = EARLIEST
    buffered.fill()
    buffered.visibility_filter.hidden = set(buffered.positions)
    await buffered.cursor.rewind()
    buffered.visibility_filter.at = buffered.positions[3]
    buffered.buffer.refresh()
    assert [] == buffered.acknowledged
    buffered.cursor.revision.start()
    buffered.visibility_filter.move()
    buffered.buffer.refresh()
    assert [] == buffered.acknowledged, "nor while one runs"


async def test_clear_empties_the_buffer_and_removes_the_listener(fixture: PartitionFixture) -> None:
    buffered = await buffer_fixture(fixture)
    buffered.visibility_filter.at = buffered.positions[2]
    buffered.fill()
    assert buffered.visibility_filter.listeners
    buffered.buffer.clear()
    assert not buffered.buffer
    assert {} == buffered.visibility_filter.listeners
    buffered.buffer.clear()

"""What was read on waits for the screen, and for whoever can take it."""

from kledger.ledger import EARLIEST, Cursor, Entry
from kledger.subscriptions.dispatch.dispatcher import DispatchBuffer
from tests.subscriptions.partition_fixture import House
from tests.subscriptions.switchable_filter import Curtain


class Stand:
    """Entries 0 to 5 of a cursor that were read, and a curtain before some of them."""

    def __init__(self, cursor: Cursor, entries: list[Entry]) -> None:
        self.cursor = cursor
        self.entries = entries
        self.places = [each.position for each in entries]
        self.curtain = Curtain()
        self.changes = 0
        self.buffer = DispatchBuffer(cursor, self.curtain, changed=self._count)

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
        return [number for number in range(6) if state.is_acknowledged(self.places[number])]


async def stand(room: House) -> Stand:
    for number in range(6):
        await room.add(f"{number}")
    cursor = await room.ledger.open_cursor("s", initial=EARLIEST)
    return Stand(cursor, await cursor.read(6))


async def test_visible_entries_are_ready_at_once(room: House) -> None:
    here = await stand(room)
    assert not here.buffer
    here.fill()
    assert here.buffer
    assert list(range(6)) == here.ready
    assert {} == here.curtain.listeners, "nobody waits for anything"


async def test_unsettled_entry_holds_up_all_behind_it(room: House) -> None:
    here = await stand(room)
    here.curtain.at = here.places[2]
    here.fill()
    assert [0, 1] == here.ready
    here.buffer.ready = []
    assert here.buffer, "something waits"
    here.curtain.move(here.places[2])
    assert 0 == here.changes, "nothing more is known"
    here.curtain.move(here.places[4])
    assert 1 == here.changes
    assert [] == here.ready, "it only says so"
    here.buffer.refresh()
    assert [2, 3] == here.ready
    here.curtain.move()
    here.buffer.refresh()
    assert [2, 3, 4, 5] == here.ready
    assert (2, {}) == (here.changes, here.curtain.listeners)


async def test_hidden_entry_is_acknowledged_once_settled(room: House) -> None:
    here = await stand(room)
    here.curtain.at = here.places[3]
    here.curtain.hidden = {here.places[number] for number in (1, 3, 5)}
    here.fill()
    assert ([0, 2], [1]) == (here.ready, here.acknowledged)
    here.curtain.move()
    here.buffer.refresh()
    assert ([0, 2, 4], [1, 3, 5]) == (here.ready, here.acknowledged)


async def test_entries_acknowledged_meanwhile_are_removed(room: House) -> None:
    here = await stand(room)
    here.curtain.at = here.places[2]
    here.fill()
    here.cursor.acknowledge_nowait([], upto=here.places[0])
    await here.cursor.delete([here.places[2], here.places[4]])
    here.buffer.refresh()
    assert [1] == here.ready
    here.curtain.move()
    here.buffer.refresh()
    assert [1, 3, 5] == here.ready


async def test_buffer_is_empty_when_all_unsettled_entries_are_acknowledged(room: House) -> None:
    here = await stand(room)
    here.curtain.at = EARLIEST
    here.fill()
    await here.cursor.clear_backlog()
    here.buffer.refresh()
    assert not here.buffer
    assert {} == here.curtain.listeners


async def test_hidden_entries_read_before_a_revision_are_not_acknowledged(room: House) -> None:
    here = await stand(room)
    here.curtain.at = EARLIEST
    here.fill()
    here.curtain.hidden = set(here.places)
    await here.cursor.rewind()
    here.curtain.at = here.places[3]
    here.buffer.refresh()
    assert [] == here.acknowledged
    here.cursor.revision.start()
    here.curtain.move()
    here.buffer.refresh()
    assert [] == here.acknowledged, "nor while one runs"


async def test_clear_empties_the_buffer_and_removes_the_listener(room: House) -> None:
    here = await stand(room)
    here.curtain.at = here.places[2]
    here.fill()
    assert here.curtain.listeners
    here.buffer.clear()
    assert not here.buffer
    assert {} == here.curtain.listeners
    here.buffer.clear()

"""What the contract does not say about the engine in memory."""

import pytest

from kledger.ledger.engine.errors import StorageError
from kledger.ledger.engine.memory import MemoryEngine
from tests.ledger.engine.words import entry_count, group_of, store


def test_closed_engine_refuses_everything() -> None:
    engine = MemoryEngine()
    engine.close()
    for call in (
        lambda: engine.commit(group_of(0), sync=True),
        engine.sync,
        lambda: engine.index(group_of(0)),
        lambda: engine.read(7, 0, 0, 1),
        lambda: engine.last_entry(7),
        lambda: engine.get(b""),
        lambda: engine.scan(b"", b"z"),
    ):
        with pytest.raises(StorageError, match="closed"):
            call()


def test_data_is_copied_when_it_is_committed() -> None:
    """Synced data is restored as committed, though the caller reuses the buffer."""
    engine = MemoryEngine(keeps_groups=True)
    group = group_of(0)
    buffer = bytearray(group.entries[0][2])
    group.entries[0] = (7, 0, buffer)
    engine.commit(group, sync=True)
    engine.index(group)
    buffer[:] = bytes(len(buffer))

    assert 1 == entry_count(engine)
    engine.drop_unsynced()
    assert 1 == entry_count(engine)


def test_dropping_needs_kept_groups() -> None:
    with pytest.raises(AssertionError):
        MemoryEngine().drop_unsynced()


def test_dropping_keeps_what_was_synced_though_it_was_not_indexed() -> None:
    engine = MemoryEngine(keeps_groups=True)
    store(engine, group_of(0))
    engine.commit(group_of(1), sync=True)
    engine.commit(group_of(2), sync=False)
    engine.drop_unsynced()
    assert 2 == entry_count(engine)

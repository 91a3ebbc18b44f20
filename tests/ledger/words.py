"""Words to build ledgers, lists and entries, for the ledger tests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from kledger.ledger import (
    EARLIEST,
    Entry,
    LedgerError,
    LedgerStore,
    ManagedLedger,
    ManagedLedgerConfig,
    Position,
    StoreConfig,
)
from kledger.ledger.metadata.ledger_list_state import LedgerListState, MetadataChange
from kledger.ledger.metadata.records import LedgerRecord, ManagedLedgerRecord
from kledger.ledger.testing import ManualClock

OpenStore = Callable[..., Awaitable[LedgerStore]]

SMALL = ManagedLedgerConfig(max_entries_per_ledger=4)
UNLIMITED = ManagedLedgerConfig(
    max_entries_per_ledger=-1, max_bytes_per_ledger=-1, max_rollover_ms=-1
)
"""Nothing ends a ledger."""
TWO = ManagedLedgerConfig(max_entries_per_ledger=2)
COLD = StoreConfig(cache_bytes=0)


def with_limits(config: ManagedLedgerConfig, **limits: int) -> ManagedLedgerConfig:
    return replace(config, **limits)  # type: ignore[arg-type]  # every limit is a number


def pos(text: str) -> Position:
    return Position.parse(text)


def closed(ledger_id: int, entries: int, size: int = -1, closed_ms: int = 1) -> LedgerRecord:
    return LedgerRecord(
        ledger_id=ledger_id,
        entries=entries,
        size=10 * entries if size < 0 else size,
        closed_ms=closed_ms,
    )


def opened(ledger_id: int) -> LedgerRecord:
    return LedgerRecord(ledger_id=ledger_id)


def ledger_list(
    *records: LedgerRecord, confirmed: int = 0, terminated_at: Position | None = None
) -> LedgerListState:
    """Make a list whose open ledger has `confirmed` entries of 10 bytes."""
    head = ManagedLedgerRecord(managed_ledger_id=1, terminated_at=terminated_at)
    state = LedgerListState(head, records)
    for entry_id in range(confirmed):
        state.advance(Position(records[-1].ledger_id, entry_id), 10 * (entry_id + 1))
    return state


def change(
    state: LedgerListState,
    put: Iterable[LedgerRecord] = (),
    removed: Iterable[int] = (),
    terminated_at: Position | None = None,
) -> MetadataChange:
    """Make the next change of a list."""
    head = ManagedLedgerRecord(
        managed_ledger_id=state.head.managed_ledger_id,
        version=state.head.version + 1,
        terminated_at=terminated_at or state.head.terminated_at,
    )
    return MetadataChange(head=head, put=tuple(put), removed=tuple(removed))


def datas(entries: Iterable[Entry]) -> list[bytes]:
    return [entry.data for entry in entries]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def unheard(position: Position, error: LedgerError | None) -> None:
    """Ignore the outcome."""


def append(
    ml: ManagedLedger,
    data: bytes,
    done: Callable[[Position, LedgerError | None], None] = unheard,
    rows: Iterable[tuple[bytes, bytes | None]] = (),
) -> Position:
    return ml.append_nowait(data, 1, 0, done, rows)


async def add_all(ml: ManagedLedger, datas_: Iterable[bytes]) -> list[Position]:
    return await asyncio.gather(*(ml.add_entry(data) for data in datas_))


async def written(
    store: LedgerStore, count: int, config: ManagedLedgerConfig = SMALL
) -> tuple[ManagedLedger, list[Position]]:
    """Open a managed ledger and write 0, 1, 2, ..."""
    ml = await store.open_managed_ledger("orders", config=config)
    return ml, await add_all(ml, numbers(0, count - 1))


async def all_of(ml: ManagedLedger) -> list[bytes]:
    return datas(await ml.read_entries(EARLIEST, 1 << 30))


def nothing_wrong(name: str, position: Position, data: bytes | None) -> None:
    """Accept every entry."""


async def settled(clock: ManualClock, ms: int = 0) -> None:
    """Advance the clock, and run everything that became due."""
    clock.advance(ms)
    for _ in range(5):
        await asyncio.sleep(0)

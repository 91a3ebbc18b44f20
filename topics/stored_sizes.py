"""Stored sizes: the bytes of closed partitions, from their rows.

Rule: no partition is opened for it. Without a usable row, because a partition was not closed
cleanly or the row is unreadable, the size is unknown; opening the partition finds it.
Must not know: requests.
"""

from collections.abc import Iterable, Sequence

from kledger.ledger import LedgerError, LedgerStore
from kledger.topics.topic import Topic

READ_TOGETHER_MAX = 256
"""Partitions whose rows are read in one call of a thread."""


async def stored_sizes(
    store: LedgerStore, partitions: Iterable[tuple[Topic, int]]
) -> dict[tuple[Topic, int], int]:
    """Return the sizes, in bytes, of closed partitions; without those that are unknown.

    Args:
        store: has them.
        partitions: topic and index; those that are open are left out.
    """
    closed = [(topic, index) for topic, index in partitions if not topic.is_open(index)]
    sizes: dict[tuple[Topic, int], int] = {}
    for start in range(0, len(closed), READ_TOGETHER_MAX):
        some = closed[start : start + READ_TOGETHER_MAX]
        names = [topic.ledger_name(index) for topic, index in some]
        found = await store.run_blocking(_read, store, names)
        sizes |= {
            (topic, index): size
            for (topic, index), size in zip(some, found, strict=True)
            if size is not None and not topic.is_open(index)  # rows of open ones are outdated
        }
    return sizes


def _read(store: LedgerStore, names: Sequence[str]) -> list[int | None]:
    return [_size(store, name) for name in names]


def _size(store: LedgerStore, name: str) -> int | None:
    try:
        ledgers, compacted = store.stored_ledgers(name), store.stored_compacted(name)
    except LedgerError:
        return None
    if ledgers is None:
        return None
    return sum(each.size for each in ledgers) + (0 if compacted is None else compacted.size)

"""Leader epoch: the one under which a server leads its partitions.

Rule: a server that takes a store over from another one opens it under a higher epoch. The store
keeps the highest one, durable before a partition is opened under it, so epochs never fall, whatever
opens it later. A store that was never taken over has epoch 0, and no row.
Must not know: why and when servers take over.
"""

from kledger.ledger import LedgerStore
from kledger.ledger.row_format import I32, RowFormat
from kledger.topics.partition.leader_epoch_state import FIRST_EPOCH

KEY = b"leader-epoch\x01"
_EPOCHS = RowFormat[int]("leader epoch", {1: I32})


async def raise_leader_epoch(store: LedgerStore, epoch: int) -> int:
    """Return the epoch under which a store is opened: the given one, or a higher one that it keeps.

    Raises:
        UnreadableRow, LedgerError: it is not known, or not durable.
    """
    row = store.get_row(KEY)
    kept = FIRST_EPOCH if row is None else _EPOCHS.decode(row)
    if epoch > kept:
        await store.put_rows([(KEY, _EPOCHS.encode(epoch))])
    return max(epoch, kept)

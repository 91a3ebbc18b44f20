"""Store check: whether an object store is consistent enough for a cluster.

Rule: the check writes one object below `check/`, reads it at once, in parts, lists it, deletes it
and reads it again; a store that answers any of these with old data would lose records.
Must not know: databases.
"""

from typing import Final
from uuid import UUID

from kledger.ledger.errors import LedgerError, NonRecoverable, StoreUnusable
from kledger.ledger.offload.object_store import ObjectStore

FOLDER: Final = "check/"
_CONTENT: Final = bytes(range(256))


async def check_store(store: ObjectStore, attempt: UUID) -> None:
    """Write, read, list and delete an object.

    Args:
        store: of the cluster.
        attempt: a part of the name that no other check has.

    Raises:
        StoreUnusable: the store did not do it; the message says what.
    """
    name = f"{FOLDER}{attempt}"
    try:
        await store.put(name, _CONTENT)
        found = bytes(await store.get_range(name, 16, 32))
        listed = [each.name for each in await store.list(FOLDER)]
        await store.delete(name)
    except LedgerError as error:
        raise StoreUnusable(f"{store.url}: {error}") from error
    if found != _CONTENT[16:48]:
        raise StoreUnusable(f"{store.url}: a range of {name} was read as other bytes")
    if name not in listed:
        raise StoreUnusable(f"{store.url}: {name} was written and not listed")
    try:
        await store.size(name)
    except NonRecoverable:
        return
    except LedgerError as error:
        raise StoreUnusable(f"{store.url}: {error}") from error
    raise StoreUnusable(f"{store.url}: {name} was deleted and is still there")

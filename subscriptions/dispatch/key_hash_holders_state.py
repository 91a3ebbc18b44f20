"""Slot holders state: which consumer has records of which slot.

Rule: the records of a slot that are handed out and not acknowledged are all with one consumer, and
are counted. A slot whose holder is not its owner is *draining*: its owner gets nothing of it until
the holder has nothing left. That keeps the order of every key while consumers come and go.
Must not know: who owns a slot, which records. Source: PIP-379, DrainingHashesTracker; there an
entry is made when a slot moves, here the count is kept all the time and nothing has to be found out
then.
"""


class KeyHashHolders:
    """Reference counts of slots."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def is_free_for(self, key_hash: int, consumer: int) -> bool:
        """Tell whether nobody else has records of a slot."""
        held = self._holders.get(key_hash)
        return held is None or held[0] == consumer

    def take(self, key_hash: int, consumer: int, count: int) -> None:
        """A consumer gets records of a slot."""
        held = self._holders.get(key_hash)
        if held is None:
            self._holders[key_hash] = [consumer, count]
            return
        assert held[0] == consumer, f"slot {key_hash} is with consumer {held[0]}, not {consumer}"
        held[1] += count

    def release(self, key_hash: int, count: int) -> bool:
        """Records of a slot are with nobody any more; tell whether nobody has any left."""
        held = self._holders[key_hash]
        held[1] -= count
        assert held[1] >= 0, f"slot {key_hash} has {held[1]} records"
        if held[1]:
            return False
        del self._holders[key_hash]
        return True

    def clear(self) -> None:
        """Nobody has anything."""
        self._holders.clear()

"""Idle state: for how many rounds a partition was not used.

Rule: a read or a lookup sets `is_used`, one assignment; an append moves the end of the log and sets
nothing. A partition with waiting calls counts as used.
Must not know: clocks, what a round is.
"""


class IdleState:
    """The rounds of one open partition.

    Attributes:
        is_used: whether it was used in this round.
        is_held: whether it must stay open without being used.
    """

    __slots__ = ("_end_offset", "_rounds", "is_held", "is_used")

    def __init__(self) -> None:
        self.is_used = True
        self.is_held = False
        self._end_offset = 0
        self._rounds = 0

    def end_round(self, end_offset: int, *, is_awaited: bool) -> int:
        """Begin the next round; return for how many in a row it was not used.

        Args:
            end_offset: of its log, now.
            is_awaited: whether calls wait for it.
        """
        is_idle = not (self.is_used or is_awaited or end_offset != self._end_offset)
        self._rounds = self._rounds + 1 if is_idle else 0
        self.is_used, self._end_offset = False, end_offset
        return self._rounds

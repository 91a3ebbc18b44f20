"""Idle state: for how many rounds a partition was of no use to anybody.

Rule: who reads a partition or looks it up notes the use, which costs an assignment; an append moves
the end of the log, and notes nothing. Who waits for something keeps the partition in use.
Must not know: clocks, what a round is.
"""


class IdleState:
    """The rounds of one open partition.

    Attributes:
        is_used: whether somebody used it in this round.
        is_held: whether somebody who does nothing now needs it open.
    """

    __slots__ = ("_end_offset", "_rounds", "is_held", "is_used")

    def __init__(self) -> None:
        self.is_used = True
        self.is_held = False
        self._end_offset = 0
        self._rounds = 0

    def end_round(self, end_offset: int, *, is_awaited: bool) -> int:
        """Begin the next round; return how many in a row nobody used it.

        Args:
            end_offset: where its log ends now.
            is_awaited: whether somebody waits for something to happen in it.
        """
        is_idle = not (self.is_used or is_awaited or end_offset != self._end_offset)
        self._rounds = self._rounds + 1 if is_idle else 0
        self.is_used, self._end_offset = False, end_offset
        return self._rounds

"""Salvage: puts into an index image what a start would refuse to take from the log.

Rule: a group counts when a commit frame stands behind it, however damaged it is itself; of it
counts what stands before the first header that cannot be trusted. Only the image changes.
Must not know: what entries and rows mean, what is told to whom.

Without an index behind it, the log alone cannot say where moved entries came from: they count as
new, and ledgers that were dropped anywhere in the log stay dropped.
"""

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log.entry_log import PlacedGroup
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.recovery_plan import Watermark
from kledger.ledger.inspection.index_image import IndexImage
from kledger.ledger.inspection.log_walk import WalkedFile, walk_file


class Salvage:
    """One pass over the log from a place on.

    Attributes:
        walked: what each file turned out to be, by its number.
        torn_at: file and position of what stands behind the last group, None if nothing does.
    """

    def __init__(self, image: IndexImage, files: LogFiles, start: Watermark) -> None:
        """Args: start: the end of a group; group 0 stands for an index that knows nothing."""
        self.walked: dict[int, WalkedFile] = {}
        self.torn_at: tuple[int, int] | None = None
        self._image = image
        self._is_from_start = start.group == 0
        self._dropped: set[int] = set()
        self._last: PlacedGroup | None = None
        before: int | None = start.group
        for number in files.numbers():
            if number < start.file:
                continue
            position = start.position if number == start.file else 0
            if number != start.file and number - 1 not in self.walked:
                before = None
            with files.use(number) as descriptor:
                walked = walk_file(descriptor, number, before, start=position, take=self._take)
            self.walked[number] = walked
            before = walked.last_group
            self._record_end(number, walked)
        self._repeat_drops()
        image.settle()

    def _take(self, placed: PlacedGroup) -> None:
        if self._is_from_start:
            placed.group.moves = ()
            self._dropped.update(placed.group.drops)
        self._image.index.add(placed)
        self._last = placed

    def _record_end(self, number: int, walked: WalkedFile) -> None:
        if walked.torn_at is not None:
            self.torn_at = number, walked.torn_at
        elif self._last is not None and self._last.end.file == number:
            self.torn_at = None

    def _repeat_drops(self) -> None:
        """A ledger that was dropped while a copy of it was being made does not come back."""
        if self._last is not None and self._dropped:
            end = self._last.end
            group = CommitGroup(drops=sorted(self._dropped))
            self._image.index.add(PlacedGroup(group, end.position, end, 1))

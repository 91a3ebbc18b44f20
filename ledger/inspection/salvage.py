"""Salvage: adds groups of the log to an index image that a start would refuse.

Rule: a damaged group counts if a commit frame follows it, and then its frames up to the first
damaged header. Only the image changes.
Must not know: what entries and rows mean, how damage is reported.

Without an index, the old locations of moved entries are not known: moved entries then count as new,
and ledgers that were dropped anywhere in the log stay dropped.
"""

from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log.entry_log import PlacedGroup
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.recovery_plan import Watermark
from kledger.ledger.inspection.index_image import IndexImage
from kledger.ledger.inspection.log_walk import WalkedFile, walk_file


class Salvage:
    """One pass over the log from a position on.

    Attributes:
        walked: the result of each file, by its number.
        torn_at: file and position of bytes after the last group, None if there are none.
    """

    def __init__(self, image: IndexImage, files: LogFiles, start: Watermark) -> None:
        """Args: start: the end of a group; group 0 for an empty index."""
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
        """Drop ledgers again, as entries may have been moved after the drop of their ledger."""
        if self._last is not None and self._dropped:
            end = self._last.end
            group = CommitGroup(drops=sorted(self._dropped))
            self._image.index.add(PlacedGroup(group, end.position, end, 1))

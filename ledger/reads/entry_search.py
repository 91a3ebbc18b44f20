"""Entry search: finds an entry by its content; the shell of `search_plan`.

Rule: each step reads the one entry that the plan asks for; no cursor is opened, nothing is pinned.
Entries that are damaged, or trimmed during the search, are skipped; a ledger whose only copy, in a
tier, is lost is skipped as a whole. A storage failure ends the search: skipping an entry that may
be readable later could give a wrong result.
Must not know: what entries mean.
"""

from collections.abc import Awaitable, Callable

from kledger.ledger.entry import Entry
from kledger.ledger.errors import Corrupt, InvalidPosition, NonRecoverable
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.position import Position
from kledger.ledger.reads.search_plan import EntryNumbers, NewestSearch


class EntrySearch:
    """Searches in one managed ledger; several may run at once."""

    def __init__(
        self,
        state: LedgerListState,
        read_entry: Callable[[Position], Awaitable[Entry]],
        check_readable: Callable[[], None],
    ) -> None:
        """Args: check_readable: raises if the handle refuses reads."""
        self._state = state
        self._read_entry = read_entry
        self._check_readable = check_readable

    async def newest_matching(self, matches: Callable[[Entry], bool]) -> Position | None:
        """Return the newest entry for which `matches` holds; None if it fails for the first."""
        numbers = EntryNumbers(self._state.infos())
        return await self._run(NewestSearch(len(numbers)), numbers, matches)

    async def newest_before(
        self, timestamp_ms: int, time_of: Callable[[Entry], int], clock_skew_ms: int | None
    ) -> Position | None:
        """Return the newest entry older than a time; None if there is none."""
        numbers = EntryNumbers(self._state.infos())
        search = NewestSearch(len(numbers))
        if clock_skew_ms is not None:
            known, end = numbers.around_time(timestamp_ms, clock_skew_ms)
            search = NewestSearch(end, known)
        return await self._run(search, numbers, lambda entry: time_of(entry) < timestamp_ms)

    async def _run(
        self, search: NewestSearch, numbers: EntryNumbers, matches: Callable[[Entry], bool]
    ) -> Position | None:
        self._check_readable()
        while search.probe is not None:
            probe = search.probe
            try:
                entry = await self._read_entry(numbers.position(probe))
            except InvalidPosition:
                search.skip(max(probe + 1, numbers.first_from(self._state.first_position)))
            except NonRecoverable:
                search.skip(self._after_lost(probe, numbers))
            except Corrupt:
                search.skip(probe + 1)
            else:
                search.answer(is_match=matches(entry))
        return None if search.found is None else numbers.position(search.found)

    def _after_lost(self, probe: int, numbers: EntryNumbers) -> int:
        """Return the entry after one that does not exist; in a tier whole objects are missing."""
        ledger_id = numbers.position(probe).ledger_id
        tiered = self._state.tiered(ledger_id)
        if tiered is None or not tiered.primary_deleted:
            return probe + 1
        return numbers.first_from(Position(ledger_id + 1, 0))

"""FetchManager: from a fetch request to the session that it starts, continues or ends.

Rule: nothing changes before a request is known to be served: a request that must wait for a log to
be opened comes here again. Ids are random, so that none is taken for one of before a restart. Above
the limit of partitions in all, nothing new becomes a session, and the one that grew ends: its
client goes on with requests that name all they want.
Must not know: how a session waits.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kledger.gateway.fetch.session import FetchSession, SessionPartition
from kledger.gateway.fetch.session_state import (
    FETCH_SESSION_ID_NOT_FOUND,
    INITIAL_EPOCH,
    NONE,
    PARTITIONS_MAX,
    SESSION_ID_MAX,
    FetchSessionCache,
)
from kledger.gateway.fetch.slot import LogLookup
from kledger.gateway.wire.fetch_codec import FetchPartition, ParsedFetchRequest

if TYPE_CHECKING:
    from kledger.gateway.services import Services


class FetchManager:
    """The incremental fetch sessions of one server."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        slots_max = services.config.max_incremental_fetch_session_cache_slots
        self._cache: FetchSessionCache[FetchSession] = FetchSessionCache(slots_max)
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._cache)

    def find_continued(
        self, request: ParsedFetchRequest, *, has_topic_ids: bool
    ) -> tuple[FetchSession | None, int]:
        """Return the session that a request goes on with, or None and why it cannot."""
        session = self._cache.get(request.session_id)
        if session is None:
            return None, FETCH_SESSION_ID_NOT_FOUND
        error = session.continuation_error(request.session_epoch, has_topic_ids=has_topic_ids)
        return (None, error) if error else (session, NONE)

    def end(self, session_id: int) -> None:
        """End a session; nothing if there is none."""
        session = self._cache.remove(session_id)
        if session is not None:
            self._partition_count -= session.partition_count
            session.end()

    def begin(
        self,
        request: ParsedFetchRequest,
        wanted: Sequence[tuple[FetchPartition, LogLookup]],
        *,
        has_topic_ids: bool,
    ) -> FetchSession | None:
        """Serve a request that names all its partitions; None: without a session."""
        if request.session_id:
            self.end(request.session_id)
        if request.session_epoch != INITIAL_EPOCH:
            return None
        now_ms = self._services.clock.monotonic_ms()
        if not self._cache.has_room():
            eviction_candidate = self._cache.eviction_candidate(len(wanted), now_ms)
            if eviction_candidate is None:
                return None
            self.end(eviction_candidate.session_id)
        if not self._cache.has_room():
            return None  # there may be no sessions at all
        if self._partition_count + len(wanted) > PARTITIONS_MAX:
            return None
        session = FetchSession(self._new_id(), has_topic_ids=has_topic_ids, now_ms=now_ms)
        self._cache.add(session)
        _add_partitions(session, wanted)
        self._partition_count += session.partition_count
        return session

    def update(
        self,
        session: FetchSession,
        request: ParsedFetchRequest,
        wanted: Sequence[tuple[FetchPartition, LogLookup]],
        refound: Sequence[tuple[SessionPartition, LogLookup]],
    ) -> None:
        """Let a request go on with a session that it may go on with.

        Args:
            session: as `find_continued` returned it.
            request: says what is forgotten.
            wanted: what is new, or has other numbers.
            refound: partitions that had no log before.
        """
        before = session.partition_count
        self._cache.advance(session, self._services.clock.monotonic_ms())
        for one, found in refound:
            one.find(*found)
        _add_partitions(session, wanted)
        for key in request.forgotten:
            session.forget(key)
        self._partition_count += session.partition_count - before
        if not session.partition_count or self._partition_count > PARTITIONS_MAX:
            self.end(session.session_id)

    def _new_id(self) -> int:
        entropy = self._services.entropy
        session_id = 1 + entropy.below(SESSION_ID_MAX)
        while self._cache.get(session_id) is not None:
            session_id = 1 + entropy.below(SESSION_ID_MAX)
        return session_id


def _add_partitions(
    session: FetchSession, wanted: Sequence[tuple[FetchPartition, LogLookup]]
) -> None:
    for (key, index, leader_epoch, offset, _, _, bytes_max), found in wanted:
        session.add_partition(
            (key, index), offset=offset, bytes_max=bytes_max, leader_epoch=leader_epoch, found=found
        )

"""Fetch sessions (KIP-227): the partitions that a client fetches again and again.

Rule: a fetch looks only at the partitions that are ready: those that the client named, those whose
log has changed, and those with records that were not fetched yet. All others only have a listener,
which is called once; so a quiet partition costs nothing, however many there are, and neither does
the session of a disconnected client. A request changes nothing before it is known to be served,
because one that waits for a log to be opened is started again. Ids are random, so that none is
taken for one of before a restart; a session is its user's alone. Above the limit of partitions in
all sessions, no new one begins, and one that grew ends: its client then names all partitions in
each request.
Must not know: how requests are parsed. `session_state` decides which sessions exist.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kledger.gateway.fetch.session_state import (
    FETCH_SESSION_ID_NOT_FOUND,
    INITIAL_EPOCH,
    NO_SESSION,
    NONE,
    PARTITIONS_MAX,
    SESSION_ID_MAX,
    CachedPartition,
    FetchSessionCache,
    FetchSessionEntry,
)
from kledger.gateway.fetch.slot import (
    FetchedPartition,
    FetchSlot,
    LogLookup,
    missing_partition_code,
)
from kledger.gateway.wire.fetch_codec import (
    FetchPartition,
    FetchResult,
    ParsedFetchRequest,
    fetch_response_frame,
)

if TYPE_CHECKING:
    from kledger.gateway.net.ports import ResponsePort
    from kledger.gateway.services import Services
    from kledger.security.principal import Principal
    from kledger.topics import PartitionLog

PartitionKey = tuple[bytes, int]


class SessionPartition(FetchedPartition):
    """One partition of a session; `fetch` is the session."""

    __slots__ = ("cached", "is_listening", "leader_epoch", "session")

    def __init__(self, session: "FetchSession", key: bytes, index: int) -> None:
        super().__init__(session, key, index, 0, 0)
        self.session = session
        self.cached = CachedPartition()
        self.leader_epoch = -1
        self.is_listening = False

    def find(self, log: "PartitionLog | None", error_code: int) -> None:
        """Read from this log from now on, or be in error."""
        self.stop_listening()
        self.log, self.error_code = log, error_code
        if log is not None:
            self.use(log, self.leader_epoch)

    def listen(self) -> None:
        """Be called at the next change of the log."""
        if not self.is_listening and self.log is not None:
            self.is_listening = True
            self.log.add_listener(self, self.session)

    def stop_listening(self) -> None:
        """Remove the listener from the log."""
        if self.is_listening and self.log is not None:
            self.is_listening = False
            self.log.remove_listener(self)

    @property
    def is_changed(self) -> bool:
        """Whether the next response would name it."""
        log = self.log
        return (
            log is None
            or bool(self.error_code or self.counted)
            or self.cached.has_changed(log.high_watermark, log.log_start_offset)
        )


class FetchSession(FetchSessionEntry):
    """The partitions that one client fetches again and again."""

    __slots__ = (
        "_partitions",
        "is_ended",
        "missing_partition_code",
        "principal",
        "ready",
        "rules_version",
        "slot",
    )

    def __init__(
        self, session_id: int, *, has_topic_ids: bool, now_ms: int, principal: "Principal"
    ) -> None:
        super().__init__(session_id, has_topic_ids=has_topic_ids, now_ms=now_ms)
        self.missing_partition_code = missing_partition_code(has_topic_ids=has_topic_ids)
        self._partitions: dict[PartitionKey, SessionPartition] = {}
        self.ready: dict[SessionPartition, None] = {}
        """The partitions that the next response may name, in that order."""
        self.slot: SessionFetchSlot | None = None
        """The fetch that waits."""
        self.is_ended = False
        self.principal = principal
        """Its user."""
        self.rules_version = 0
        """Of the access rules by which its partitions were found."""

    unit_kind = "fetch session"

    @property
    def unit_name(self) -> str:
        """Its id."""
        return str(self.session_id)

    def close_after_fault(self, error: Exception) -> None:
        """End it, and close the connection of a waiting fetch; the client begins a new session."""
        if self.slot is not None:
            self.slot.contain(error)
        self.end()

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return len(self._partitions)

    def add_partition(
        self,
        key: PartitionKey,
        *,
        offset: int,
        bytes_max: int,
        leader_epoch: int,
        found: LogLookup,
    ) -> None:
        """Add a partition, or replace its numbers.

        Args:
            key: topic as on the wire, and index.
            offset: of the first record to fetch.
            bytes_max: the partition's own limit.
            leader_epoch: that the client knows.
            found: its log, or its error.
        """
        one = self._partitions.get(key)
        if one is None:
            one = self._partitions[key] = SessionPartition(self, *key)
        one.offset, one.bytes_max, one.leader_epoch = offset, bytes_max, leader_epoch
        one.find(*found)
        self.ready[one] = None

    def forget(self, key: PartitionKey) -> None:
        """Remove a partition; nothing if there is none."""
        one = self._partitions.pop(key, None)
        if one is not None:
            one.stop_listening()
            self.ready.pop(one, None)

    def partitions(self) -> "Collection[SessionPartition]":
        """Return all partitions."""
        return self._partitions.values()

    def partitions_without_log(self) -> list[SessionPartition]:
        """Return the ready partitions whose topic must be looked up again."""
        return [one for one in self.ready if one.log is None or one.log.is_closed]

    def partition_changed(self, one: FetchedPartition) -> None:
        """Make a partition ready: its log has changed."""
        assert isinstance(one, SessionPartition)
        one.stop_listening()
        self.ready[one] = None
        if self.slot is not None:
            self.slot.partition_changed(one)
            one.listen()

    def update_readiness(self, one: SessionPartition, *, has_records: bool = False) -> None:
        """Keep a partition ready only while the next response would name it.

        Args:
            one: the partition.
            has_records: the response has records of it; it goes behind the others.
        """
        if one not in self.ready:
            return
        if not one.is_changed:
            del self.ready[one]
            one.listen()
        elif has_records:
            del self.ready[one]
            self.ready[one] = None

    def end(self) -> None:
        """Answer the waiting fetch, and remove all partitions and listeners."""
        if self.slot is not None:
            self.slot.finish()
        for one in self._partitions.values():
            one.stop_listening()
        self._partitions.clear()
        self.ready.clear()
        self.is_ended = True


class SessionFetchSlot(FetchSlot):
    """One fetch of a session: reads only ready partitions, and sends only what has changed."""

    __slots__ = ("_is_full_response", "_session")

    def __init__(
        self,
        services: "Services",
        port: "ResponsePort",
        version: int,
        request: ParsedFetchRequest,
        session: FetchSession,
    ) -> None:
        super().__init__(services, port, version, b"", request)
        self._session = session
        self._is_full_response = request.session_epoch == 0

    def _count_available(self) -> None:
        for one in self._session.ready:
            one.counted = 0
            if one.log is not None:
                one.use(one.log, one.leader_epoch)
            one.count(self._wait, is_committed=self._is_committed)
        if not self._session.partition_count:
            self._wait.is_over = True

    def _add_listeners(self) -> None:
        session = self._session
        if session.slot is not None:
            session.slot.finish()  # its connection is closed: no client sends two at a time
        session.slot = self
        self._listen_to_rules()
        for one in list(session.ready):
            session.update_readiness(one)
            one.listen()

    def _waited_for(self) -> "Collection[FetchedPartition]":
        return tuple(self._session.partitions())

    def _stop_listening(self) -> None:
        super()._stop_listening()
        if self._session.slot is self:
            self._session.slot = None

    def _expire(self) -> None:
        self._timer = None
        self._answer()

    def _answer(self) -> None:
        self.wanted = list(self._session.ready)
        super()._answer()

    def _send(self, results: list[FetchResult]) -> None:
        session, cached = self._session, []
        results = self._within_quota(self._still_allowed(results))
        for one, result in zip(self.wanted, results, strict=True):
            assert isinstance(one, SessionPartition)
            _, _, error_code, high_watermark, _, log_start_offset, _, _, size = result
            has_changed = one.cached.has_changed(high_watermark, log_start_offset)
            if self._is_full_response or error_code or size or has_changed:
                cached.append(result)
                one.cached.update(error_code, high_watermark, log_start_offset)
            session.update_readiness(one, has_records=size > 0)
        session_id = NO_SESSION if session.is_ended else session.session_id
        self._respond(
            fetch_response_frame(
                self._correlation_id,
                self._version,
                cached,
                session_id=session_id,
                hints=self._leader_hints(cached) if self._wait.has_error else None,
            )
        )


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
        self, request: ParsedFetchRequest, principal: "Principal", *, has_topic_ids: bool
    ) -> tuple[FetchSession | None, int]:
        """Return the session that a request continues, or None and the error code."""
        session = self._cache.get(request.session_id)
        if session is None or session.principal != principal:
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
        principal: "Principal",
        *,
        has_topic_ids: bool,
    ) -> FetchSession | None:
        """Begin a session for a request that names all its partitions; None: it gets none."""
        replaced = self._cache.get(request.session_id)
        if replaced is not None and replaced.principal == principal:
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
            return None  # the limit is 0
        if self._partition_count + len(wanted) > PARTITIONS_MAX:
            return None
        session = FetchSession(
            self._new_id(), has_topic_ids=has_topic_ids, now_ms=now_ms, principal=principal
        )
        session.rules_version = self._services.rules_version
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
        """Apply a request to the session that it continues.

        Args:
            session: from `find_continued`.
            request: names the partitions to remove.
            wanted: the partitions that are new or have other numbers.
            refound: partitions that had no log, or all after a change of rules, looked up again.
        """
        session.rules_version = self._services.rules_version
        before = session.partition_count
        self._cache.advance(session, self._services.clock.monotonic_ms())
        for one, found in refound:
            one.find(*found)
            session.ready[one] = None  # it listens no more
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

"""Fetch session state: which incremental fetch sessions exist, and which request continues which.

Rule: a request continues a session with the epoch after the last one, one request at a time. A new
session evicts one that was not used for long, or an older and smaller one; otherwise it is not
created, and its client names all partitions in each request. A response repeats offsets of a
partition only when they have changed. Source: KIP-227, Kafka's FetchManager and FetchSessionCache.
Must not know: logs, requests, how a session waits.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Generic, TypeVar

from kledger.gateway.wire.error_codes import ErrorCode

NO_SESSION = 0
INITIAL_EPOCH = 0
"""Requests a new session; ends the session whose id the request has."""
FINAL_EPOCH = -1
"""Requests no session; ends the session whose id the request has."""
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
EVICTION_MS = 120_000
PARTITIONS_MAX = 1_000_000
"""In all sessions together."""

NONE = int(ErrorCode.NONE)
FETCH_SESSION_ID_NOT_FOUND = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
INVALID_FETCH_SESSION_EPOCH = int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
FETCH_SESSION_TOPIC_ID_ERROR = int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)


def next_epoch(epoch: int) -> int:
    """Return the epoch that continues a session; never 0."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


class FetchSessionEntry(ABC):
    """The state that decides about one session.

    Attributes:
        has_topic_ids: whether its client names topics by ids (from version 13 on) or by names.
        epoch: the epoch that the next request must have.
    """

    __slots__ = ("created_ms", "epoch", "has_topic_ids", "session_id", "used_ms")

    def __init__(self, session_id: int, *, has_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.has_topic_ids = has_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = self.used_ms = now_ms

    @property
    @abstractmethod
    def partition_count(self) -> int:
        """How many partitions it keeps for its client."""

    def continuation_error(self, epoch: int, *, has_topic_ids: bool) -> int:
        """Return the error of a request that continues it; 0: none."""
        if epoch != self.epoch:
            return INVALID_FETCH_SESSION_EPOCH
        return NONE if has_topic_ids == self.has_topic_ids else FETCH_SESSION_TOPIC_ID_ERROR


Session = TypeVar("Session", bound=FetchSessionEntry)


class FetchSessionCache(Generic[Session]):
    """The sessions of one server."""

    def __init__(self, slots_max: int) -> None:
        self._slots_max = slots_max
        # In the order of their last use.
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> Session | None:
        """Return a session, or None."""
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> Session | None:
        """Remove and return a session; None if there is none."""
        return self._sessions.pop(session_id, None)

    def has_room(self) -> bool:
        """Return whether a new session needs no eviction."""
        return len(self._sessions) < self._slots_max

    def eviction_candidate(self, partition_count: int, now_ms: int) -> Session | None:
        """Return the session to evict for a new one of that many partitions; None: there is none.

        Two cases: the session used longest ago, if that is more than `EVICTION_MS`; else the
        smallest one older than that, if it is no larger than the new one.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms > EVICTION_MS:
            return oldest
        settled = [one for one in self._sessions.values() if now_ms - one.created_ms > EVICTION_MS]
        smallest = min(settled, key=lambda one: one.partition_count, default=None)
        if smallest is None or smallest.partition_count > partition_count:
            return None
        return smallest

    def add(self, session: Session) -> None:
        """Add a session for which there is room."""
        assert self.has_room(), f"{len(self._sessions)} fetch sessions, none was removed"
        assert session.session_id not in self._sessions, f"session {session.session_id} twice"
        self._sessions[session.session_id] = session

    def advance(self, session: Session, now_ms: int) -> None:
        """Continue a session with a request."""
        session.epoch = next_epoch(session.epoch)
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)


class CachedPartition:
    """The offsets that the client of a session was last sent for one partition."""

    __slots__ = ("high_watermark", "log_start_offset")

    def __init__(self) -> None:
        self.high_watermark = self.log_start_offset = -1

    def has_changed(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether these differ from what was sent last."""
        return high_watermark != self.high_watermark or log_start_offset != self.log_start_offset

    def update(self, error_code: int, high_watermark: int, log_start_offset: int) -> None:
        """Record what is sent; after an error the next offsets count as changed."""
        self.high_watermark = -1 if error_code else high_watermark
        self.log_start_offset = log_start_offset

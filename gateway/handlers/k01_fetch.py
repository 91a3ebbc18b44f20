"""Fetch, key 1, versions 4-18.

Behaviour:
- Nothing is read to find out whether to wait; see `gateway.fetch_plan` for when the answer leaves
  and how many bytes each partition adds. No cursor of any kind exists.
- Waiting is an object that listens to its partitions, and one timer; it holds up its own
  connection alone. If nothing happened until the timer ended, the object is kept: a consumer that
  asks the same again is waiting again for the price of comparing the requests.
- Stored bytes leave as they are. Records are never null: clients fail on it.
- Without sessions (KIP-227): every answer says session id 0, which makes clients send the whole
  list each time; a request that continues a session gets FETCH_SESSION_ID_NOT_FOUND.
- An offset beyond the end or before the start is OFFSET_OUT_OF_RANGE, with -1 for all offsets. An
  isolation level that does not exist is UNKNOWN_SERVER_ERROR for every partition, as in Kafka.
- Aborted transactions are null for read_uncommitted, a list for read_committed.

Version notes:
- v5 log start offset (KIP-107), v7 sessions, v9 leader epoch (KIP-320), v11 rack (KIP-392; there is
  no other replica to prefer), v12 last fetched epoch (one epoch here, so nothing can diverge),
  v13 topic ids (KIP-516), v15 replica state and v17, v18 fields are for followers.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from gateway.error_map import error_code_of
from gateway.fetch_plan import ISOLATION_LEVELS, session_error
from gateway.fetch_slot import FetchSlot, WantedPartition
from gateway.topic_lookup import TopicLookup
from gateway.wire.error_codes import ErrorCode
from gateway.wire.fetch_codec import (
    TOPIC_ID_SINCE,
    FetchPartition,
    fetch_response_frame,
    parse_fetch_request,
)
from topics import Topic, TopicsError

if TYPE_CHECKING:
    from gateway.router import ResponsePort
    from gateway.services import Services

KEY = 1
MIN_VERSION = 4
MAX_VERSION = 18

Missing = tuple[Topic, int]


def make_handler(services: "Services") -> "FetchHandler":
    """Return the handler of one server."""
    return FetchHandler(services)


class FetchHandler:
    """Serves Fetch on frames; see `gateway.router.HotHandler`."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._lookup = TopicLookup(services.registry)
        self._failed: dict[Missing, TopicsError] = {}

    def start(
        self,
        port: "ResponsePort",
        frame: memoryview,
        version: int,
        body_start: int,
        correlation_id: int,
        *,
        is_owned: bool,
    ) -> Coroutine[Any, Any, None] | None:
        """Answer, or wait for data, or say which logs must be opened first."""
        body = bytes(frame[body_start:])
        kept = port.kept
        if kept is not None:
            if isinstance(kept, FetchSlot) and kept.is_same(version, body):
                kept.wait_again(correlation_id)
                return None
            port.kept = None
            kept.abandon()
        request = parse_fetch_request(memoryview(body), version)
        refused = session_error(request.session_id, request.session_epoch)
        if refused:
            port.reply(fetch_response_frame(correlation_id, version, (), error_code=refused))
            return None
        fetch = FetchSlot(self._services, port, version, body, request)
        missing: list[Missing] = []
        for one in request.partitions:
            self._resolve(fetch, one, version, missing)
        if missing:
            return self._open(missing)
        if request.isolation_level not in ISOLATION_LEVELS:
            fetch.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        fetch.begin(correlation_id)
        return None

    def _resolve(
        self, fetch: FetchSlot, one: FetchPartition, version: int, missing: list[Missing]
    ) -> None:
        """Add one partition to the fetch, with its log or its error."""
        key, index, leader_epoch, offset, _, _, bytes_max = one
        wanted = WantedPartition(fetch, key, index, offset, bytes_max)
        fetch.wanted.append(wanted)
        has_ids = version >= TOPIC_ID_SINCE
        topic = self._lookup.by_id(key) if has_ids else self._lookup.by_name(key)
        if topic is None:
            wanted.error_code = (
                ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            return
        log = topic.partition(index)
        if log is not None:
            wanted.use(log, leader_epoch)
            return
        if not 0 <= index < topic.partition_count:
            wanted.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        failed = self._failed.pop((topic, index), None) if self._failed else None
        if failed is None:
            missing.append((topic, index))
        else:
            wanted.error_code = error_code_of(failed)

    async def _open(self, missing: list[Missing]) -> None:
        """Open logs; a failure is told to the request when it is started again."""
        for topic, index in missing:
            try:
                await topic.open_partition(index)
            except TopicsError as error:
                self._failed[topic, index] = error

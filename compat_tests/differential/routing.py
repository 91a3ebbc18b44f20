"""Routing: a connection for each broker of a server, chosen for each request as clients choose it.

Rule: a request about a partition goes to its leader, one about a group or a transactional id to its
coordinator, any other one to the first broker. What spans several leaders or coordinators goes to
those of its first element. Where nothing leads, the first broker is asked.
Must not know: answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from compat_tests.deadlines import ask_until
from compat_tests.differential.connection import TIMEOUT_S, Closed, Connection, Silent
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.schema import ApiMessage

GROUP, TRANSACTION = 0, 1
GROUP_FIELDS = ("group_id", "group_ids", "groups_names", "groups")
TRANSACTION_FIELDS = ("transactional_id", "v3_and_below_transactional_id", "transactional_ids")
TO_GROUPS = {8, 9, 11, 12, 13, 14, 15, 28, 42, 47, 68, 69}
TO_TRANSACTIONS = {22, 24, 25, 26, 65}
TO_LEADERS = {0, 1, 2, 21, 23, 27, 61}
FETCH = 1
ZERO = UUID(int=0)


class Led(NamedTuple):
    """A partition in a request."""

    topic: str | UUID
    partition: int


class RoutedConnection(Connection):
    """Looks like one connection, and is one for each broker."""

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = TIMEOUT_S,
        login: tuple[str, str] | None = None,
    ) -> None:
        """Remember where; nothing is connected yet."""
        super().__init__(bootstrap, timeout_s=timeout_s, login=login)
        self._asking = Connection(bootstrap, login=login)
        self._brokers: dict[int, Connection] = {}
        self._asked: deque[Connection] = deque()
        self._fetched: Connection | None = None

    def close(self) -> None:
        """Hang up everywhere."""
        for each in (self._asking, *self._brokers.values()):
            each.close()
        self._brokers.clear()
        self._asked.clear()

    def send(self, request: ApiMessage, version: int, *, is_answered: bool = True) -> None:
        """Send a request to the broker that it is for."""
        broker = self._broker_of(request)
        broker.send(request, version, is_answered=is_answered)
        if is_answered:
            self._asked.append(broker)

    def receive(self) -> ApiMessage | Closed | Silent:
        """Take the answer to the oldest request that has none."""
        return self._asked.popleft().receive()

    def _broker_of(self, request: ApiMessage) -> Connection:
        key = type(request).__api__.key
        name: str | None = None
        if key in TO_GROUPS and (name := _first_name(request, GROUP_FIELDS)):
            return self._coordinator(GROUP, name)
        if key in TO_TRANSACTIONS and (name := _transactional_id(request)):
            return self._coordinator(TRANSACTION, name)
        if key not in TO_LEADERS:
            return self._first()
        led = next(_partitions(request), None)
        if led is None:  # of a session, perhaps
            return (key == FETCH and self._fetched) or self._first()
        found = self._leader(led)
        if key == FETCH:
            self._fetched = found
        return found

    def _leader(self, led: Led) -> Connection:
        if isinstance(led.topic, UUID):
            wanted = MetadataRequestTopic(name=None, topic_id=led.topic)
        else:
            wanted = MetadataRequestTopic(name=led.topic)
        answer = self._ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
        self._note(answer.brokers)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.partition_index == led.partition and each.leader_id in self._brokers:
                    return self._brokers[each.leader_id]
        return self._first()

    def _coordinator(self, kind: int, name: str) -> Connection:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        answer = ask_until(
            lambda: self._ask(request, 4),
            lambda each: each.coordinators[0].error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"the coordinator of {name}",
        )
        found: int = answer.coordinators[0].node_id
        if found < 0:
            return self._first()
        if found not in self._brokers:
            self._first()
        return self._brokers[found]

    def _first(self) -> Connection:
        if not self._brokers:
            self._note(self._ask(MetadataRequest(topics=[]), 12).brokers)
        return self._brokers[min(self._brokers)]

    def _note(self, brokers: list[Any]) -> None:
        for each in brokers:
            if each.node_id not in self._brokers:
                address = f"{each.host}:{each.port}"
                self._brokers[each.node_id] = Connection(
                    address, timeout_s=self._timeout_s, login=self._login
                )

    def _ask(self, request: ApiMessage, version: int) -> Any:
        self._asking.send(request, version)
        return self._asking.receive()


def _first_name(value: Any, fields: tuple[str, ...]) -> str | None:
    """Return the first name in fields that have one, or a list of names or of what has one."""
    for field in fields:
        found = getattr(value, field, None)
        if isinstance(found, list):
            found = found[0] if found else None
        if found is not None and not isinstance(found, str):
            found = _first_name(found, fields)
        if found:
            return str(found)
    return None


def _transactional_id(request: Any) -> str | None:
    if batched := getattr(request, "transactions", None):
        return _first_name(batched[0], TRANSACTION_FIELDS)
    return _first_name(request, TRANSACTION_FIELDS)


def _partitions(value: Any, topic: str | UUID | None = None) -> Iterator[Led]:
    """Find the partitions in a request, with their topics, in order."""
    for field in ("topic", "name", "topic_id"):
        found = getattr(value, field, None)
        if found and found != ZERO:
            topic = found
            break
    for field in ("markers", "topics", "topic_data", "partitions", "partition_data"):
        found = getattr(value, field, None)
        for each in found if isinstance(found, list) else ():
            yield from _partitions(each, topic)
    for field in ("partition_indexes", "partition_index", "partition", "index"):
        found = getattr(value, field, None)
        numbers = found if isinstance(found, list) else [found]
        for number in numbers:
            if isinstance(number, int) and topic is not None:
                yield Led(topic, number)

"""Side: one server, as a script sees it, and the record of what it answered.

Rule: a script is played once against each server and must not look at which one it is; what it
says with `ask` is compared, what it says with `quietly` only makes ready.
Must not know: what the other server answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from compat_tests.deadlines import ask_until
from compat_tests.differential import words
from compat_tests.differential.connection import (
    TIMEOUT_S,
    Closed,
    Connection,
    Silent,
    message_modules,
)
from compat_tests.differential.masks import Masks, Plain
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from kledger.gateway.wire.schema import ApiMessage

LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""What a server says that has not come so far yet; a client asks again."""
SHORT_S = 30.0
"""How long to wait where silence is expected: twice, as a server may only be late."""


class Exchange(NamedTuple):
    """One request and what came back."""

    label: str
    api: str
    version: int
    answer: Plain


class Side:
    """One server."""

    def __init__(
        self,
        bootstrap: str,
        versions: Mapping[int, range],
        masks: Masks,
        login: tuple[str, str] | None = None,
        *,
        connect: type[Connection] = Connection,
    ) -> None:
        """Connect.

        Args:
            bootstrap: the address.
            versions: in which both servers are asked, by key.
            masks: of this server.
            login: user and password.
            connect: makes connections; `RoutedConnection` for a server of several brokers.
        """
        self._connection_type = connect
        self._login = login
        self._bootstrap = bootstrap
        self._versions = versions
        self._masks = masks
        self._open: list[Connection] = []
        self._connection = self._connect()
        self.log: list[Exchange] = []

    def _connect(self, timeout_s: float = TIMEOUT_S) -> Connection:
        connection = self._connection_type(self._bootstrap, timeout_s=timeout_s, login=self._login)
        self._open.append(connection)
        return connection

    def close(self) -> None:
        """Hang up everywhere."""
        for each in self._open:
            each.close()

    def versions(self, key: int, *, since: int = 0, until: int = 99) -> Iterator[int]:
        """Give the versions of an API that both servers have, from the oldest on."""
        served = message_modules()[key].REQUEST.__api__.versions
        yield from (
            one for one in self._versions.get(key, ()) if one in served and since <= one <= until
        )

    def common_keys(self) -> list[int]:
        """Give the APIs that both servers have."""
        return sorted(self._versions)

    def another(self) -> Side:
        """Give the same server over a connection of its own; what is said goes into one log."""
        other = Side(
            self._bootstrap,
            self._versions,
            self._masks,
            self._login,
            connect=self._connection_type,
        )
        other.log, other._open = self.log, [*other._open]
        self._open.extend(other._open)
        return other

    # Compared.

    def ask(self, label: str, request: ApiMessage, version: int) -> Any:
        """Send a request, record the response, return it."""
        return self._note(label, request, version, self.quietly(request, version))

    def ask_shortly(self, label: str, request: ApiMessage, version: int) -> Any:
        """Ask what a server may never answer, over a connection of its own."""
        connection = self._connect(SHORT_S)
        connection.send(request, version)
        return self._note(label, request, version, connection.receive())

    def begin(self, request: ApiMessage, version: int) -> None:
        """Send a request that the server lets wait."""
        self._connection.send(request, version)

    def finish(self, label: str, request: ApiMessage, version: int) -> Any:
        """Take the answer to what was begun."""
        return self._note(label, request, version, self._connection.receive())

    def settle(self, label: str, request: ApiMessage, version: int) -> Any:
        """Ask until the server has come so far; only the last answer is noted."""
        answer = ask_until(
            lambda: self.quietly(request, version),
            lambda answer: not LOADING & set(error_codes(answer)),
            f"{label}: a final answer",
        )
        return self._note(label, request, version, answer)

    def ask_until(
        self, label: str, request: ApiMessage, version: int, is_so: Callable[[Any], bool]
    ) -> Any:
        """Ask until the answer shows something; only that answer is noted."""
        what = f"{label}: {type(request).__name__} {version}"
        answer = ask_until(lambda: self.quietly(request, version), is_so, what)
        return self._note(label, request, version, answer)

    def tell(self, label: str, request: ApiMessage, version: int) -> None:
        """Send a request without a response; record the state of the connection."""
        self._connection.send(request, version, is_answered=False)
        probe = MetadataRequest(topics=[])
        self.ask(label, probe, 8)

    def _note(self, label: str, request: ApiMessage, version: int, answer: Any) -> Any:
        api = type(request).__api__.name.removesuffix("Request")
        plain = self._masks.plain(answer, version)
        self.log.append(Exchange(label, api, version, plain))
        return answer

    # Not compared.

    def quietly(self, request: ApiMessage, version: int) -> Any:
        """Ask without noting it."""
        self._connection.send(request, version)
        return self._connection.receive()

    def has(self, topic: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic and wait until it is served; give its name."""
        created = self.quietly(words.create_topic(topic, partitions, configs), 7)
        assert created.topics[0].error_code == 0, created
        self.wait_served(topic, partitions)
        return topic

    def wait_served(self, topic: str, partitions: int) -> None:
        """A new partition is led a moment later only; its leader may be any broker."""
        for partition in range(partitions):
            request = words.list_offsets(topic, {partition: -1})
            ask_until(
                partial(self.quietly, request, 7),
                lambda answer: not any(error_codes(answer)),
                f"{topic} is served",
            )

    def write(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Produce batches one after the other."""
        for batch in batches:
            answer = self.quietly(words.produce(topic, {partition: batch}), 7)
            assert not any(error_codes(answer)), answer

    def producer(self) -> int:
        """Give a new producer id; the first one takes a server a while."""
        request = InitProducerIdRequest(transactional_id=None)
        answer = ask_until(
            lambda: self.quietly(request, 5), lambda answer: not answer.error_code, "a producer id"
        )
        found: int = answer.producer_id
        return found

    def topic_id(self, topic: str) -> UUID:
        """Give the id that this server gave to a topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        found: UUID = self.quietly(request, 12).topics[0].topic_id
        return found

    def advertised(self) -> dict[int, range]:
        """Give the versions that the server says it has."""
        module = message_modules()[18]
        answer = self.quietly(module.REQUEST(), 0)
        return {one.api_key: range(one.min_version, one.max_version + 1) for one in answer.api_keys}


def error_codes(answer: Any) -> Iterator[int]:
    """Find every error code in an answer, however deep."""
    if isinstance(answer, Closed | Silent):
        yield ErrorCode.NETWORK_EXCEPTION
        return
    if isinstance(answer, list):
        for one in answer:
            yield from error_codes(one)
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if "error_code" in name:
            yield value
        elif isinstance(value, list):
            yield from error_codes(value)

"""Unknown topics: what Produce does about a topic or partition that this broker does not know.

Rule: if there are other brokers, a request waits once until their changes are applied, and is then
started again. All connections that wait share one poll.
Must not know: how topics are looked up, where changes come from.
"""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.topics.topic_names import is_internal, resolve_name

if TYPE_CHECKING:
    from kledger.gateway.net.ports import ResponsePort
    from kledger.gateway.services import CatchUp

UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
CAUGHT_UP_MAX: Final = 1_000
"""Connections that are remembered; one more forgets all, whose requests then wait again."""


def missing_topic_error(name: bytes) -> ErrorCode:
    """Return the error code of a name without a topic."""
    if is_internal(resolve_name(name.decode("utf-8", "replace"))):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopics:
    """The requests of one handler that wait."""

    def __init__(self, catch_up: "CatchUp | None") -> None:
        """Args: catch_up: applies what other brokers have changed; None: there are none."""
        self._catch_up = catch_up
        self._caught_up: set[int] = set()

    def before(
        self, found: Sequence[object], port: "ResponsePort"
    ) -> Coroutine[Any, Any, None] | None:
        """Return what must be awaited before a request is answered; None: nothing.

        Args:
            found: what the request is answered with, by partition.
            port: the connection of the request.
        """
        if self._catch_up is None or port.connection_id in self._caught_up:
            return None
        if not any(each in UNKNOWN for each in found):
            return None
        return self._wait(self._catch_up, port)

    def passed(self, port: "ResponsePort") -> None:
        """Let the next request of a connection wait again."""
        self._caught_up.discard(port.connection_id)

    async def _wait(self, catch_up: "CatchUp", port: "ResponsePort") -> None:
        await catch_up()
        if port.is_closed:
            return
        if len(self._caught_up) >= CAUGHT_UP_MAX:
            self._caught_up.clear()  # connections that were closed before their request went on
        self._caught_up.add(port.connection_id)

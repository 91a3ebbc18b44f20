"""DeferredSlot: the place of a response that is made when a handler's result is there.

Rule: a result comes in the midst of somebody else's work; the response is made, and the next
request started, at the end of that turn of the loop.
Must not know: which API it is.
"""

from typing import TYPE_CHECKING, Any

from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.net.router import encode_response
from kledger.gateway.wire.header import RequestHeader
from kledger.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kledger.gateway.net.router import ResponsePort


class DeferredSlot(ResponseSlot):
    """One request that waits for others, such as the members of its group; no task."""

    __slots__ = ("_header", "_later", "_port")

    def __init__(
        self, port: "ResponsePort", header: RequestHeader, deferred: Deferred[Any]
    ) -> None:
        super().__init__()
        self._port = port
        self._header = header
        self._later = deferred

    def begin(self) -> None:
        """Take the place, and wait."""
        self._port.open_slot(self, is_exclusive=True)
        self._later.when_resolved(self._settled)

    def _settled(self) -> None:
        self._port.finish_at_tick_end(self)

    def finish(self) -> None:
        """Answer."""
        self.response = encode_response(self._header, self._later.result())
        self._port.slot_ready(self)

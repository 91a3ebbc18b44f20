"""LaterSlot: the place of a response that is made when a handler's result is there.

Rule: a result comes in the midst of somebody else's work; the response is made, and the next
request started, at the end of that turn of the loop.
Must not know: which API it is.
"""

from typing import TYPE_CHECKING, Any

from kledger.gateway.connection_state import Slot
from kledger.gateway.router import encode_response
from kledger.gateway.wire.header import RequestHeader
from kledger.runtime.later import Later

if TYPE_CHECKING:
    from kledger.gateway.router import ResponsePort


class LaterSlot(Slot):
    """One request that waits for others, such as the members of its group; no task."""

    __slots__ = ("_header", "_later", "_port")

    def __init__(self, port: "ResponsePort", header: RequestHeader, later: Later[Any]) -> None:
        super().__init__()
        self._port = port
        self._header = header
        self._later = later

    def begin(self) -> None:
        """Take the place, and wait."""
        self._port.open_slot(self, is_exclusive=True)
        self._later.when_settled(self._settled)

    def _settled(self) -> None:
        self._port.finish_soon(self)

    def finish(self) -> None:
        """Answer."""
        self.response = encode_response(self._header, self._later.result())
        self._port.slot_ready(self)

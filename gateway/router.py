"""Router: from an API key and version to the code that answers.

Rule: a route is built when its key is first asked for and kept; a key or version outside the list
of handlers has none, and its connection is closed (ApiVersions answers for itself).
Must not know: sockets, response order, what an API means.
"""

from collections.abc import Coroutine, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from gateway.context import RequestContext
from gateway.handlers import HANDLERS_BY_KEY, HandlerSpec
from gateway.wire.codec import decode, encode
from gateway.wire.header import RequestHeader, response_header

if TYPE_CHECKING:
    from gateway.connection_state import Slot
    from gateway.services import Services

Buffer = bytes | bytearray | memoryview


class ResponsePort(Protocol):
    """What a hot handler sees of the connection that its request came from."""

    connection_id: int
    peer_host: str

    def open_slot(self, slot: "Slot", *, is_exclusive: bool) -> None:
        """Keep a place in the order of responses; exclusive: no later request starts before it."""
        ...

    def slot_ready(self, slot: "Slot") -> None:
        """The slot's response was set; it leaves as soon as the ones before it have."""
        ...

    def fail(self, reason: str) -> None:
        """Close the connection because of something its peer did."""
        ...


class HotHandler(Protocol):
    """A handler that works on the frame itself: Produce and Fetch."""

    def start(
        self,
        port: ResponsePort,
        frame: memoryview,
        version: int,
        body_start: int,
        correlation_id: int,
        *,
        is_owned: bool,
    ) -> Coroutine[Any, Any, None] | None:
        """Begin to serve one request.

        Args:
            port: opens a slot for the response, unless there is none.
            frame: the request without its size. Valid during this call only, unless is_owned.
            body_start: where the header ends.
            is_owned: nobody else will write to the memory behind `frame`: parts of it may be kept.

        Returns:
            None if the request was started. Otherwise something must happen first: the connection
            runs the coroutine and then starts the same request again; nothing was done yet.

        Raises:
            MalformedMessage: the connection is closed.
        """
        ...


class Route:
    """How one API key is served."""

    __slots__ = ("_handle", "_request_class", "hot", "spec")

    def __init__(self, spec: HandlerSpec, services: "Services") -> None:
        module = import_module(f"gateway.handlers.{spec.module}")
        self.spec = spec
        self.hot: HotHandler | None = None
        if hasattr(module, "make_handler"):
            self.hot = module.make_handler(services)
            return
        messages = import_module(f"gateway.wire.messages.{spec.module}")
        self._request_class = messages.REQUEST
        self._handle = module.handle

    def call(
        self, context: RequestContext, body: memoryview, body_start: int
    ) -> object | Coroutine[Any, Any, object]:
        """Decode the request and hand it to the handler; return the response or its coroutine."""
        request = decode(self._request_class, context.version, body, body_start)
        return self._handle(context, request)


class Router:
    """The routes of one server."""

    def __init__(self, services: "Services") -> None:
        self.services = services
        self._routes: dict[int, Route] = {}

    def find(self, key: int, version: int) -> Route | None:
        """Return the route, or None if that key or version is not served."""
        route = self._routes.get(key)
        if route is None:
            spec = HANDLERS_BY_KEY.get(key)
            if spec is None:
                return None
            route = self._routes[key] = Route(spec, self.services)
        spec = route.spec
        return route if spec.min_version <= version <= spec.max_version else None


def encode_response(header: RequestHeader, response: object) -> Sequence[Buffer]:
    """Return the whole frame of a response, its size included."""
    body = response if isinstance(response, bytes) else encode(response, header.api_version)
    head = response_header(header.correlation_id, header.api_key, header.api_version)
    size = len(head) + len(body)
    return (size.to_bytes(4, "big") + head + body,)

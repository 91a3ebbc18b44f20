"""Router: from an API key and version to the code that answers.

Rule: a route is built when its key is first asked for and kept; a key or version outside the list
of handlers has none, and its connection is closed (ApiVersions answers for itself).
Must not know: sockets, response order, what an API means.
"""

from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from kledger.gateway.request_context import RequestContext
from kledger.gateway.served_apis import HANDLERS_BY_KEY, HandlerSpec
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.header import (
    API_VERSIONS_KEY,
    FLEXIBLE_SINCE,
    NEVER,
    RequestHeader,
    response_prefix,
)
from kledger.gateway.wire.primitives import Buffer
from kledger.gateway.wire.schema import ApiMessage
from kledger.runtime.containment import FaultUnit

if TYPE_CHECKING:
    from kledger.gateway.net.connection_state import ResponseSlot
    from kledger.gateway.services import Services

ResponseFrame = Sequence[Buffer]
"""The whole frame of a response, in pieces."""

HandleRequest = Callable[[RequestContext, Any], object]


class FetchMeter(Protocol):
    """What a fetch asks about its client's quota."""

    @property
    def fetch_bytes_max(self) -> int:
        """How many bytes the answer may have."""
        ...

    def admits_fetched(self, size: int) -> bool:
        """Return whether that many bytes of records may leave; if not, the client waits."""
        ...


class FetchSpace(Protocol):
    """The room for responses that are not sent yet, as a fetch sees it."""

    @property
    def fetch_bytes_max(self) -> int:
        """How much the fetch may add; its first batch may be larger."""
        ...

    def has_room(self) -> bool:
        """Tell whether the fetch may be answered now."""
        ...

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        """Call back when it may; not when the connection is gone before."""
        ...

    def reserve(self, size: int) -> None:
        """Keep room for what is about to be read of the storage."""
        ...

    def release(self) -> None:
        """Give that room back."""
        ...


class ResponsePort(FaultUnit, Protocol):
    """What a hot handler sees of the connection that its request came from."""

    connection_id: int
    throttle_time_ms: int
    """What the request that is being started tells its client to wait (KIP-219)."""
    retained_slot: "ResponseSlot | None"
    """What a handler keeps for the next request of this connection; abandoned with it."""
    is_closed: bool
    """Whether nothing more will be sent."""

    @property
    def peer_host(self) -> str:
        """The address of the other end."""
        ...

    def open_slot(self, slot: "ResponseSlot", *, is_exclusive: bool) -> None:
        """Keep a place in the order of responses; exclusive: no later request starts before it."""
        ...

    def slot_ready(self, slot: "ResponseSlot") -> None:
        """The slot's response was set; it leaves as soon as the ones before it have."""
        ...

    def respond(self, response: ResponseFrame) -> None:
        """Answer a request that runs alone and kept no slot."""
        ...

    @property
    def writer(self) -> "FetchSpace":
        """What the unsent responses of all connections leave for its fetch."""
        ...

    @property
    def meter(self) -> "FetchMeter":
        """What the quota of the client says about its fetch."""
        ...

    def finish_at_tick_end(self, slot: "ResponseSlot") -> None:
        """Call `slot.finish` once at the end of the loop turn, before responses are written."""
        ...

    def fail(self, reason: str) -> None:
        """Close the connection because of something its peer did."""
        ...

    def abort(self) -> None:
        """Close the connection without another word."""
        ...

    def contain(self, error: Exception) -> None:
        """Close the connection because of a fault here, and say so."""
        ...


class FrameHandler(Protocol):
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
            version: API version.
            correlation_id: of the request.
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

    __slots__ = (
        "_handle", "_request_class", "flexible_since", "frame_handler", "request_ms", "requests",
        "spec"
    )  # fmt: skip

    def __init__(self, spec: HandlerSpec, services: "Services") -> None:
        module = import_module(f"kledger.gateway.handlers.{spec.module}")
        self.spec = spec
        self.flexible_since = FLEXIBLE_SINCE.get(spec.key, NEVER)
        api = {"api": spec.module.partition("_")[2]}
        counter = services.metrics.counter
        self.requests = counter("requests", "requests that were started", api)
        self.request_ms = counter(
            "request_ms", "time from the start of requests to their responses", api
        )
        self.frame_handler: FrameHandler | None = None
        if hasattr(module, "make_handler"):
            self.frame_handler = module.make_handler(services)
            return
        self._request_class = import_module(f"kledger.gateway.wire.messages.{spec.module}").REQUEST
        self._handle: HandleRequest = (
            module.bind(services) if hasattr(module, "bind") else module.handle
        )

    def call(
        self, context: RequestContext, frame: memoryview, body_start: int
    ) -> object | Coroutine[Any, Any, object]:
        """Decode the request and hand it to the handler; return the response or its coroutine."""
        request = decode(self._request_class, context.version, frame, body_start)
        return self._handle(context, request)


class Router:
    """The routes of one server."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._routes: dict[int, Route] = {}

    def find(self, key: int, version: int) -> Route | None:
        """Return the route, or None if that key or version is not served."""
        route = self._routes.get(key)
        if route is None:
            spec = HANDLERS_BY_KEY.get(key)
            if spec is None:
                return None
            route = self._routes[key] = Route(spec, self._services)
        spec = route.spec
        return route if spec[1] <= version <= spec[2] else None

    def unsupported_version_response(
        self, key: int, version: int, correlation_id: int
    ) -> ResponseFrame | None:
        """Return the answer to a request that has no route; None: its connection is closed.

        Only ApiVersions has one: error 35 in the layout of version 0, which every client can
        read, so that it can ask again with a version that is served. The body is not looked at.
        """
        if key != API_VERSIONS_KEY:
            return None
        handler = import_module("kledger.gateway.handlers.k18_api_versions")
        return encode_response_frame(handler.unsupported_version(), key, 0, correlation_id)


def encode_response_frame(
    response: object, key: int, version: int, correlation_id: int
) -> ResponseFrame:
    """Return the frame of a response; the response may be its encoded body already."""
    body = response if isinstance(response, bytes) else encode(cast(ApiMessage, response), version)
    return (response_prefix(correlation_id, key, version, len(body)) + body,)


def encode_response(header: RequestHeader, response: object) -> ResponseFrame:
    """Return the frame of the response to the request with that header."""
    return encode_response_frame(
        response, header.api_key, header.api_version, header.correlation_id
    )

"""Router: finds the handler of an API key and version.

Rule: a route is built at the first request of its key, and kept. A key or version that is not in
`served_apis` has no route, and its connection is closed; only ApiVersions is answered. A request
that needs a right on the cluster is refused here, by the table of `api_rights`.
Must not know: sockets, response order, what an API means.
"""

from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, cast

from kledger.gateway.api_rights import API_RIGHTS, REFUSALS, REPEATED_REFUSALS, request_rights
from kledger.gateway.net.error_response import NoErrorField, error_response
from kledger.gateway.net.ports import FrameHandler, ResponseFrame
from kledger.gateway.request_context import RequestContext
from kledger.gateway.served_apis import HANDLERS_BY_KEY, HandlerSpec
from kledger.gateway.services import Services
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.header import (
    API_VERSIONS_KEY,
    FLEXIBLE_SINCE,
    NEVER,
    RequestHeader,
    response_prefix,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.security.acl_state import ResourceType

HandleRequest = Callable[[RequestContext, Any], object]


class Route:
    """How one API key is served."""

    __slots__ = (
        "_handle", "_has_request_rights", "_messages", "flexible_since", "frame_handler",
        "request_ms", "requests", "spec"
    )  # fmt: skip

    def __init__(self, spec: HandlerSpec, services: Services) -> None:
        assert spec.key in API_RIGHTS, f"no row of rights for {spec.module}"
        self._has_request_rights = bool(request_rights(spec.key, spec.max_version))
        handler = spec.load()
        self.spec = spec
        self.flexible_since = FLEXIBLE_SINCE.get(spec.key, NEVER)
        api = {"api": spec.module.partition("_")[2]}
        counter = services.metrics.counter
        self.requests = counter("requests", "requests that were started", api)
        self.request_ms = counter(
            "request_ms", "time from the start of requests to their responses", api
        )
        self.frame_handler: FrameHandler | None = None
        if hasattr(handler, "make_handler"):
            self.frame_handler = handler.make_handler(services)
            return
        self._messages = import_module(f"kledger.gateway.wire.messages.{spec.module}")
        self._handle: HandleRequest = (
            handler.bind(services) if hasattr(handler, "bind") else handler.handle
        )

    def call(
        self, context: RequestContext, frame: memoryview, body_start: int
    ) -> object | Coroutine[Any, Any, object]:
        """Decode the request and call its handler; return the response, or a coroutine of it."""
        request = decode(self._messages.REQUEST, context.version, frame, body_start)
        if self._has_request_rights and not self._admits(context):
            return self._refusal(context, request)
        return self._handle(context, request)

    def _admits(self, context: RequestContext) -> bool:
        """Return whether the client has one of the rights that the whole request needs."""
        operations = request_rights(self.spec.key, context.version)
        if not operations or context.services.authorizer is None:
            return True
        *others, last = operations
        return any(
            context.authorize(each, ResourceType.CLUSTER, is_audited=False) for each in others
        ) or context.authorize(last, ResourceType.CLUSTER)

    def _refusal(self, context: RequestContext, request: ApiMessage) -> ApiMessage:
        """Return the response that refuses everything that a request names."""
        response_class = self._messages.RESPONSE
        try:
            return error_response(
                request,
                response_class,
                context.version,
                REFUSALS[ResourceType.CLUSTER],
                is_repeated=self.spec.key in REPEATED_REFUSALS,
            )
        except NoErrorField:
            empty: ApiMessage = response_class()
            return empty


class Router:
    """The routes of one server."""

    def __init__(self, services: Services) -> None:
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
        """Return the response to a request without a route; None: its connection is closed.

        Only ApiVersions has one: error 35 in the layout of version 0. Every client can read it and
        retries with a version that is served. The body of the request is not decoded.
        """
        if key != API_VERSIONS_KEY:
            return None
        handler = import_module("kledger.gateway.handlers.k18_api_versions")
        return encode_response_frame(handler.unsupported_version(), key, 0, correlation_id)


def encode_response_frame(
    response: object, key: int, version: int, correlation_id: int
) -> ResponseFrame:
    """Return the frame of a response, which is a message or an encoded body."""
    body = response if isinstance(response, bytes) else encode(cast(ApiMessage, response), version)
    return (response_prefix(correlation_id, key, version, len(body)) + body,)


def encode_response(header: RequestHeader, response: object) -> ResponseFrame:
    """Return the frame of the response to the request with that header."""
    return encode_response_frame(
        response, header.api_key, header.api_version, header.correlation_id
    )

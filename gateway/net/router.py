"""Router: finds the handler of an API key and version.

Rule: a route is built at the first request of its key, and kept. A key or version that is not in
`served_apis` has no route, and its connection is closed; only ApiVersions is answered. A request
that needs a right on the cluster is refused here, by the table of `api_rights`. Before a request
about what brokers share, or about a partition that its broker does not know, this broker applies
what other brokers have changed. A broker that may have lost its cluster refuses the requests of
`newest_answers`.
Must not know: sockets, response order, what an API means.
"""

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, Final, cast

from kledger.gateway.api_rights import API_RIGHTS, REFUSALS, REPEATED_REFUSALS, request_rights
from kledger.gateway.net.error_response import NoErrorField, error_response
from kledger.gateway.net.ports import FrameHandler, ResponseFrame
from kledger.gateway.net.unknown_partitions import PARTITION_FIELDS, names_unknown_partition
from kledger.gateway.newest_answers import NOT_CURRENT_ERRORS
from kledger.gateway.request_context import RequestContext
from kledger.gateway.served_apis import HANDLERS_BY_KEY, HandlerSpec
from kledger.gateway.services import CatchUp, Services
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
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

SHARED: Final = frozenset(
    {3, 20, 29, 31, 32, 33, 35, 37, 39, 40, 41, 43, 44, 45, 46, 48, 49, 50, 51, 60, 74, 75}
)
"""Keys of requests about what brokers share, and about what another one may have just changed.

Clients send them to any broker, and expect it to know what they did at another one. What creates
something is decided under a lock, and needs no look before.
"""


class Route:
    """How one API key is served."""

    __slots__ = (
        "_catch_up", "_handle", "_has_request_rights", "_is_current", "_messages",
        "_partition_fields", "_registry", "flexible_since", "frame_handler", "request_ms",
        "requests", "spec"
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
        self._registry = services.registry
        self._partition_fields = PARTITION_FIELDS.get(spec.key)
        is_looked_up = spec.key in SHARED or self._partition_fields is not None
        self._catch_up = services.catch_up if is_looked_up else None
        self._is_current = services.is_current if spec.key in NOT_CURRENT_ERRORS else None
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
        if self._is_current is not None and not self._is_current():
            return self._error(context, request, NOT_CURRENT_ERRORS[self.spec.key])
        if self._catch_up is not None and (
            self._partition_fields is None
            or names_unknown_partition(request, self._partition_fields, self._registry)
        ):
            return self._handle_caught_up(self._catch_up, context, request)
        return self._handle(context, request)

    async def _handle_caught_up(
        self, catch_up: CatchUp, context: RequestContext, request: ApiMessage
    ) -> object:
        await catch_up()
        response = self._handle(context, request)
        return await response if asyncio.iscoroutine(response) else response

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
        return self._error(
            context,
            request,
            REFUSALS[ResourceType.CLUSTER],
            is_repeated=self.spec.key in REPEATED_REFUSALS,
        )

    def _error(
        self,
        context: RequestContext,
        request: ApiMessage,
        error: ErrorCode,
        *,
        is_repeated: bool = False,
    ) -> ApiMessage:
        """Return the response with an error for all that a request names; it may name nothing."""
        response_class = self._messages.RESPONSE
        try:
            return error_response(
                request, response_class, context.version, error, is_repeated=is_repeated
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

"""Request faults: requests of a listener fail, wait or are delayed at a test's request.

    faults = RequestFaults()
    GatewayServer(services, faults.make_connection)
    faults.fail_next("Produce", error="NOT_LEADER_OR_FOLLOWER")

Rule: a fault is used up by one request that starts after it was armed; all other requests are
served as usual. Only connections of a special class check for faults, so other servers pay nothing.
Must not know: where a response has its error (`error_response` does), what handlers do.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from threading import Lock
from typing import TypeAlias

from kledger.gateway.net.connection import Connection
from kledger.gateway.net.connection_state import HOLD_BLOCKED, ResponseSlot
from kledger.gateway.net.error_response import NoErrorField, error_response
from kledger.gateway.net.listener import ListenerState
from kledger.gateway.net.router import encode_response
from kledger.gateway.request_context import plain_listener
from kledger.gateway.served_apis import HANDLERS, HANDLERS_BY_KEY
from kledger.gateway.wire.codec import decode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.header import PRODUCE_KEY, decode_request_header
from kledger.gateway.wire.messages.k00_produce import ProduceRequest
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

KNOWN_APIS = {
    "".join(part.capitalize() for part in spec.module.split("_")[1:]): spec.key for spec in HANDLERS
}
"""API key by the name that Kafka has for it."""
REACHED_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer the request with an error; None: close its connection."""

    error: ErrorCode | None


@dataclass(frozen=True, slots=True)
class Delay:
    """Start the request after a delay, by the clock of the server."""

    ms: int


class RequestHold:
    """One request, held at its start until a test releases or fails it, from any thread.

    Its connection serves no other request meanwhile; other connections do.
    """

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._decided: Future[Fail | None] = Future()

    async def reached(self) -> None:
        """Wait until the request is held."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    def wait_reached(self, timeout_ms: int = REACHED_TIMEOUT_MS) -> None:
        """Do the same in a program without an event loop; never on the loop of the server.

        Raises:
            TimeoutError: no such request began in time.
        """
        try:
            self._reached.result(timeout_ms / 1000)
        except TimeoutError:
            raise TimeoutError(f"no such request began within {timeout_ms} ms") from None

    @property
    def is_waiting(self) -> bool:
        """Whether a request is held now."""
        return self._reached.done() and not self._decided.done()

    def release(self) -> None:
        """Serve the request, now or when it starts."""
        self._decide(None)

    def fail(self, error: "ErrorCode | str | int | None" = None) -> None:
        """Answer the request with an error; without one, close its connection."""
        self._decide(Fail(_error_code(error)))

    def _decide(self, decision: Fail | None) -> None:
        with suppress(InvalidStateError):  # decided already, or the server is closed
            self._decided.set_result(decision)

    async def decision(self) -> Fail | None:
        """Hold the request; return what happens to it afterwards. Called by connections."""
        if not self._reached.done():
            self._reached.set_result(None)
        return await asyncio.wrap_future(self._decided)


Fault: TypeAlias = Fail | Delay | RequestHold


class RequestFaults:
    """The faults of one listener. Every method may be called in any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._armed: defaultdict[int, deque[Fault]] = defaultdict(deque)
        self._holds: list[RequestHold] = []

    def fail_next(self, api: str | int, error: "ErrorCode | str | int | None" = None) -> None:
        """Answer the next request of an API with an error; without one, close its connection.

        Args:
            api: Kafka's name of the API, such as `Produce`, or its key.
            error: Kafka's name of the error, such as `NOT_LEADER_OR_FOLLOWER`, or its number.

        Raises:
            ValueError: there is no such API or error; the message lists those that exist.
        """
        self._arm(api, Fail(_error_code(error)))

    def hold_next(self, api: str | int) -> RequestHold:
        """Hold the next request of an API at its start."""
        hold = RequestHold()
        self._arm(api, hold)
        self._holds.append(hold)
        return hold

    def delay_next(self, api: str | int, ms: int) -> None:
        """Delay the next request of an API."""
        self._arm(api, Delay(ms))

    @property
    def armed_count(self) -> int:
        """How many armed faults are unused."""
        with self._lock:
            return sum(map(len, self._armed.values()))

    def clear(self) -> None:
        """Disarm all faults, and release all held requests."""
        with self._lock:
            self._armed.clear()
            holds, self._holds = self._holds, []
        for hold in holds:
            hold.release()

    def take(self, key: int) -> Fault | None:
        """Remove and return the fault of a request that starts. Called by connections."""
        with self._lock:
            armed = self._armed.get(key)
            return armed.popleft() if armed else None

    def put_back(self, key: int, fault: Fault) -> None:
        """Arm a fault again that could not be used, before all others. Called by connections."""
        with self._lock:
            self._armed[key].appendleft(fault)

    def make_connection(self, listener: ListenerState) -> Connection:
        """Return the protocol of one socket, with these faults."""
        return FaultyConnection(listener, self)

    def _arm(self, api: str | int, fault: Fault) -> None:
        key = api_key_of(api)
        with self._lock:
            self._armed[key].append(fault)


class FaultyConnection(Connection):
    """A connection that asks for a fault before it starts a request."""

    __slots__ = ("_faults", "_resumed")

    def __init__(self, listener: ListenerState, faults: RequestFaults) -> None:
        super().__init__(listener)
        self._faults = faults
        self._resumed: deque[Fail | None] = deque(maxlen=1)
        """What happens to the first waiting request after its delay or its hold."""

    def _begin(self, frame: memoryview, is_owned: bool) -> None:
        key = int.from_bytes(frame[:2], "big", signed=True)
        fault = self._resumed.pop() if self._resumed else self._faults.take(key)
        match fault:
            case None:
                super()._begin(frame, is_owned)
            case Fail():
                self._answer_with(fault, frame, is_owned)
            case _:
                self._wait(frame, is_owned, is_first=True)
                self.state.holds |= HOLD_BLOCKED
                work = self._unblock(self._wait_out(fault))
                self._listener.services.supervisor.spawn(work, "request held by a test")

    async def _wait_out(self, fault: Delay | RequestHold) -> None:
        decision: Fail | None = None
        if isinstance(fault, Delay):
            await self._listener.services.clock.sleep(fault.ms)
        else:
            decision = await fault.decision()
        self._resumed.append(decision)

    def _answer_with(self, fault: Fail, frame: memoryview, is_owned: bool) -> None:
        header = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        route = self._listener.router.find(key, version)
        if route is None:
            super()._begin(frame, is_owned)
            return
        messages = import_module(f"kledger.gateway.wire.messages.{route.spec.module}")
        request = decode(messages.REQUEST, version, frame, header.body_start)
        error = fault.error
        if isinstance(request, FetchRequest) and not request.topics and request.session_epoch > 0:
            # The request names nothing that could have an error; this one makes the client resend
            # all names.
            self._faults.put_back(key, fault)
            error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if error is None or (isinstance(request, ProduceRequest) and not request.acks):
            self.fail("a test wants it")
            return
        if isinstance(request, MetadataRequest) and request.topics is None:
            request.topics = list(self._all_topics())
        try:
            answer = error_response(request, messages.RESPONSE, version, error)
        except NoErrorField as none:
            self.fail(f"a test wants {error.name}: {none}")
            return
        if isinstance(answer, MetadataResponse):
            self._add_broker(answer)
        route.requests.value += 1
        self._current_bytes, self._request_ms = len(frame), route.request_ms
        slot = ResponseSlot()
        self.open_slot(slot, is_exclusive=key != PRODUCE_KEY)
        slot.response = encode_response(header, answer)
        self.slot_ready(slot)

    def _all_topics(self) -> Iterator[MetadataRequestTopic]:
        for topic in self._listener.services.registry.all():
            yield MetadataRequestTopic(name=topic.name, topic_id=topic.id)

    def _add_broker(self, answer: MetadataResponse) -> None:
        """Name the brokers: clients ignore a response without any."""
        brokers = self._listener.services.brokers
        answer.controller_id = brokers.controller_id
        shown = self.peer.listener or plain_listener(self._listener.config)
        answer.brokers = [
            MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, host, port in brokers.all(shown)
        ]


def api_key_of(api: str | int) -> int:
    """Return the key of an API by name or number.

    Raises:
        ValueError: there is none.
    """
    if isinstance(api, int) and api in HANDLERS_BY_KEY:
        return api
    plain = str(api).replace("_", "").lower()
    for name, key in KNOWN_APIS.items():
        if name.lower() == plain:
            return key
    raise ValueError(f"{api!r} is no API; {_suggested(str(api), list(KNOWN_APIS))}")


def _error_code(error: "ErrorCode | str | int | None") -> ErrorCode | None:
    if error is None or isinstance(error, ErrorCode):
        return error
    names = ErrorCode.__members__
    try:
        return names[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        raise ValueError(f"{error!r} is no error; {_suggested(str(error), list(names))}") from None


def _suggested(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    start = f"did you mean {near[0]}? " if near else ""
    return f"{start}there are {', '.join(known)}"

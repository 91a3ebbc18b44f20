"""Connection: requests built from the schemas out, answers in, over one socket.

Rule: an answer that cannot be written back byte for byte was not understood, and fails. A server
that hangs up or keeps silent has answered too, in its way: `Closed`, `Silent`.
Must not know: what is compared.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from compat_tests.deadlines import WAIT_S
from compat_tests.frames import read_frame
from compat_tests.servers.metadata_probe import answers
from kledger.gateway.wire import messages
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.header import encode_request_header, response_body_start
from kledger.gateway.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from kledger.gateway.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from kledger.gateway.wire.schema import ApiMessage

TIMEOUT_S = 60.0
CLIENT_ID = "differential"


@dataclass(frozen=True, slots=True)
class Closed:
    """The server hung up instead of answering."""


@dataclass(frozen=True, slots=True)
class Silent:
    """The server sent nothing in time, though it answered a later request of another client."""


@cache
def message_modules() -> dict[int, Any]:
    """Give the module of every API key that has a schema."""
    names = [one.name for one in iter_modules(messages.__path__)]
    modules = [import_module(f"{messages.__name__}.{name}") for name in names]
    return {module.REQUEST.__api__.key: module for module in modules}


class Connection:
    """One socket, opened when it is first needed and again after the server hung up."""

    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = TIMEOUT_S,
        login: tuple[str, str] | None = None,
    ) -> None:
        """Remember where, and the user and password of a login with PLAIN."""
        self._timeout_s = timeout_s
        self._login = login
        host, port = bootstrap.rsplit(":", 1)
        self._address = host, int(port)
        self._socket: socket.socket | None = None
        self._correlation = 0
        self._unanswered: deque[tuple[int, int]] = deque()

    def close(self) -> None:
        """Hang up; the next request connects again."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._unanswered.clear()

    def send(self, request: ApiMessage, version: int, *, is_answered: bool = True) -> None:
        """Send a request without waiting."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=WAIT_S)
            if self._login is not None:
                self._log_in(*self._login)
        self._correlation += 1
        key = type(request).__api__.key
        frame = encode_request_header(key, version, self._correlation, CLIENT_ID)
        frame += encode(request, version)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        if is_answered:
            self._unanswered.append((key, version))

    def _log_in(self, user: str, password: str) -> None:
        for request, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2),
        ):
            self.send(request, version)
            answer: Any = self.receive()
            assert answer.error_code == 0, answer

    def receive(self) -> ApiMessage | Closed | Silent:
        """Take the answer to the oldest request that has none."""
        key, version = self._unanswered.popleft()
        assert self._socket is not None
        if not self._receives(self._socket):
            self.close()
            return Silent()
        try:
            frame = read_frame(self._socket)
        except ConnectionError:
            self.close()
            return Closed()
        start = response_body_start(frame, key, version)
        answer: ApiMessage = decode(message_modules()[key].RESPONSE, version, frame, start)
        assert encode(answer, version) == frame[start:], f"key {key} v{version}: {frame.hex()}"
        return answer

    def _receives(self, connection: socket.socket) -> bool:
        """Whether bytes arrive; a server that is only late has time until it answers others."""
        if select.select([connection], [], [], self._timeout_s)[0]:
            return True
        answers(*self._address, timeout_s=WAIT_S)
        return bool(select.select([connection], [], [], self._timeout_s)[0])

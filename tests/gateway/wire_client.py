"""A small client of the protocol for tests: frames out, frames in, nothing hidden.

Requests may be pipelined: `send` returns at once, `receive` takes the next response and checks that
it answers the oldest request that was not answered.
"""

import asyncio
import socket
import struct
from collections import deque
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from kledger.gateway.served_apis import HANDLERS_BY_KEY
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.header import encode_request_header, response_body_start
from kledger.gateway.wire.schema import ApiMessage

TIMEOUT_S = 120.0
"""Ends a test that hangs, and nothing waits for it otherwise."""


class WireClient:
    """One connection."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._correlation_id = 0
        self._unanswered: deque[tuple[int, int, int]] = deque()
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.writer.close()

    async def ask(self, request: ApiMessage, version: int) -> Any:
        """Send a request and return its response."""
        self.send(request, version)
        return await self.receive()

    def send(
        self,
        request: ApiMessage,
        version: int,
        *,
        client_id: str | None = "test",
        is_answered: bool = True,
    ) -> None:
        """Send a request without waiting for anything."""
        key = type(request).__api__.key
        self.send_frame(self.frame(request, version, client_id=client_id))
        if is_answered:
            self._unanswered.append((self._correlation_id, key, version))

    def frame(self, request: ApiMessage, version: int, *, client_id: str | None = "test") -> bytes:
        """Return a request with its header and the next correlation id."""
        self._correlation_id += 1
        key = type(request).__api__.key
        header = encode_request_header(key, version, self._correlation_id, client_id)
        return header + encode(request, version)

    def send_frame(self, frame: bytes) -> None:
        """Send bytes behind their size."""
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    def expect(self, key: int, version: int) -> None:
        """Say that the frame sent last will be answered."""
        self._unanswered.append((self._correlation_id, key, version))

    async def receive(self) -> Any:
        """Return the next response, which must answer the oldest open request."""
        correlation_id, key, version = self._unanswered.popleft()
        frame = await self.receive_frame()
        assert correlation_id == int.from_bytes(frame[:4], "big")
        start = response_body_start(frame, key, version)
        module = import_module(f"kledger.gateway.wire.messages.{HANDLERS_BY_KEY[key].module}")
        return decode(module.RESPONSE, version, frame, start)

    async def receive_frame(self) -> bytes:
        """Return the next response without its size."""
        async with asyncio.timeout(TIMEOUT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    def reset(self) -> None:
        """Break the connection off, as the system does for a program that was killed."""
        linger = struct.pack("ii", 1, 0)
        found = self.writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def is_closed_by_server(self) -> bool:
        """Wait for the end of the connection; bytes that arrive instead are returned as False."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

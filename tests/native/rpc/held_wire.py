"""A connection whose streams a test can hold between socket and client."""

import asyncio
from typing import Any

from kledger.native.rpc.connection import RpcConnection
from kledger.runtime.signal import Signal


class HeldWire:
    """Every stream that is begun behind it can be held; one message of each is then on the wire."""

    def __init__(self, connection: RpcConnection) -> None:
        self._begin = connection.stream
        self._gate = asyncio.Event()
        self._gate.set()
        self._changed = Signal()
        self._held_count = 0
        connection.stream = self._stream  # type: ignore[method-assign]

    def hold(self) -> None:
        """Let nothing reach the client that it has not read yet."""
        self._gate.clear()

    def release(self) -> None:
        """Let everything through."""
        self._gate.set()

    async def reached(self, count: int = 1) -> None:
        """Return when this many messages are held."""
        while self._held_count < count:
            await self._changed.wait()

    async def pass_on(self, message: Any) -> Any:
        """Return a message that was read, when it may reach the client."""
        if not self._gate.is_set():
            self._held_count += 1
            self._changed.notify()
            try:
                await self._gate.wait()
            finally:
                self._held_count -= 1
        return message

    def _stream(self, name: str) -> "_HeldCall":
        return _HeldCall(self._begin(name), self)


class _HeldCall:
    """A stream; only incoming messages are held."""

    def __init__(self, call: Any, wire: HeldWire) -> None:
        self._call = call
        self._wire = wire
        self.write = call.write
        self.done_writing = call.done_writing
        self.cancel = call.cancel

    async def read(self) -> Any:
        return await self._wire.pass_on(await self._call.read())

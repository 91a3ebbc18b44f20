"""A proxy before an S3 server, in a thread of its own: counts requests and does something at one.

Rule: what was armed is done once, in the thread of the proxy, while the request waits; so it is
done exactly between two steps of the client, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from aiohttp import web

from tests.ledger.offload.s3_proxy import Answer, S3Proxy

CHANGING = frozenset({"PUT", "POST", "DELETE"})


@dataclass
class Moment:
    """When something is done.

    Attributes:
        requests: at which of the next requests that change the bucket.
        is_answered: when the S3 server has answered it; otherwise before it gets the request.
        act: what is done.
    """

    requests: int
    is_answered: bool
    act: Callable[[], object]


class TierProxy(S3Proxy):
    """The proxy; enter it with `with`, not with `async with`."""

    def __init__(self, server_address: str) -> None:
        """Stand before the server at that address."""
        super().__init__(server_address)
        self._moment: Moment | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def arm(self, moment: Moment) -> None:
        """Do something at a later request."""
        self._moment = moment

    def disarm(self) -> None:
        """Do nothing any more, unless it is being done."""
        self._moment = None

    def count(self) -> Counter[str]:
        """Return how many requests of each method have been answered so far."""
        return self.answered.copy()

    async def _forward(self, request: web.BaseRequest, body: bytes) -> Answer:
        moment = self._moment
        if moment is not None and request.method in CHANGING:
            moment.requests -= 1
        is_now = moment is not None and not moment.requests and request.method in CHANGING
        if is_now and moment is not None and not moment.is_answered:
            moment.act()
        answer = await super()._forward(request, body)
        if is_now and moment is not None and moment.is_answered:
            moment.act()
        return answer

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.__aenter__(), self._loop).result()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop."""
        asyncio.run_coroutine_threadsafe(self.__aexit__(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

"""An object store as a model: requests that fail, are late, take long, or do not see an object.

Rule: time passes only while somebody waits, so that a test takes none. A PUT that has failed may
have been stored, or be stored later, when the test says so.
Must not know: what objects have.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from enum import Enum, auto
from typing import Any, TypeVar

from kledger.ledger.cluster import wal_objects
from kledger.ledger.cluster.wal_objects import ObjectMissing, ObjectStoreFailed
from kledger.ledger.engine.base import Buffer

Result = TypeVar("Result")


class ObjectFault(Enum):
    """What happens to one request.

    NONE: nothing.
    FAILED: it is refused, as by a status 503.
    ANSWER_LOST: it is done, and the connection breaks before the answer.
    LATE: the connection breaks; it is done later.
    SLOW: it takes `SLOW_MS`.
    MISSING: a GET does not find its object, though it is there.
    HIDDEN: a PUT is done, but its object is found only after `HIDDEN_MS`.
    TRUNCATED: the body of a response to a GET ends early.
    """

    NONE = auto()
    FAILED = auto()
    ANSWER_LOST = auto()
    LATE = auto()
    SLOW = auto()
    MISSING = auto()
    HIDDEN = auto()
    TRUNCATED = auto()

    @property
    def is_answered(self) -> bool:
        """Whether a request is done and answered, apart from what is special about a GET."""
        return self not in {ObjectFault.FAILED, ObjectFault.ANSWER_LOST, ObjectFault.LATE}


SLOW_MS = 5_000
HIDDEN_MS = 5_000
"""Shorter than an owner asks for an object that is missing."""
PUT_MS = 40


class ModelBucket:
    """Objects, over all processes; and the time."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.late: list[tuple[str, bytes]] = []
        self.now_ms = 0
        self._hidden: dict[str, int] = {}

    def run_late(self) -> None:
        """Let all PUTs arrive that are under way."""
        for key, data in self.late:
            self.store(key, data)
        self.late.clear()

    def store(self, key: str, data: bytes) -> None:
        assert self.objects.get(key, data) == data, f"{key} is written with two contents"
        self.objects[key] = data

    def hide(self, key: str, now_ms: int) -> None:
        """Let requests not find an object for a while."""
        self._hidden[key] = now_ms + HIDDEN_MS

    def find(self, key: str, start: int, length: int, fault: ObjectFault, now_ms: int) -> Buffer:
        """Return bytes of an object. Raises ObjectMissing, ObjectStoreFailed."""
        data = self.objects.get(key)
        if data is None or fault is ObjectFault.MISSING or self._is_hidden(key, now_ms):
            raise ObjectMissing(f"there is no object {key}")
        found = memoryview(data)[start : start + length]
        if fault is ObjectFault.TRUNCATED:
            found = found[: len(found) // 2]
        return wal_objects.whole(found, key, length)

    def keys(self, prefix: str, now_ms: int) -> list[str]:
        """Return the keys that a request finds below a prefix."""
        return sorted(
            key
            for key in self.objects
            if key.startswith(prefix) and not self._is_hidden(key, now_ms)
        )

    def _is_hidden(self, key: str, now_ms: int) -> bool:
        return now_ms < self._hidden.get(key, 0)


class ModelObjects:
    """`WalObjects` of one process."""

    def __init__(
        self,
        bucket: ModelBucket,
        choose: Callable[[str], ObjectFault] = lambda _request: ObjectFault.NONE,
        *,
        passes_time: bool = True,
    ) -> None:
        """Args: choose: gets put, get, delete or list, before each request."""
        self.choose = choose
        self.requests: list[tuple[str, str]] = []
        self._bucket = bucket
        self._passes_time = passes_time
        self._slow: list[tuple[int, Callable[[], None]]] = []

    def begin_put(self, key: str, data: Buffer) -> "Future[None]":
        taken, future = bytes(data), Future[None]()
        fault = self._begin("put", key)
        match fault:
            case ObjectFault.ANSWER_LOST:
                self._bucket.store(key, taken)
            case ObjectFault.LATE:
                self._bucket.late.append((key, taken))
            case ObjectFault.FAILED:
                pass
            case _:
                wait_ms = SLOW_MS if fault is ObjectFault.SLOW else PUT_MS
                if fault is ObjectFault.HIDDEN:
                    self._bucket.hide(key, self._bucket.now_ms)
                self._later(wait_ms, future, lambda: self._bucket.store(key, taken))
                return future
        future.set_exception(ObjectStoreFailed(f"putting {key}: {fault.name}"))
        return future

    def begin_get(self, key: str, start: int, length: int) -> "Future[Buffer]":
        future: Future[Buffer] = Future()
        fault = self._begin("get", key)
        if not fault.is_answered:
            future.set_exception(ObjectStoreFailed(f"getting {key}: {fault.name}"))
            return future
        try:
            future.set_result(self._bucket.find(key, start, length, fault, self._bucket.now_ms))
        except ObjectStoreFailed as error:
            future.set_exception(error)
        return future

    def delete(self, key: str) -> None:
        fault = self._begin("delete", key)
        if fault.is_answered or fault is ObjectFault.ANSWER_LOST:
            self._bucket.objects.pop(key, None)
        if not fault.is_answered:
            raise ObjectStoreFailed(f"deleting {key}: {fault.name}")

    def list(self, prefix: str) -> Sequence[str]:
        if not self._begin("list", prefix).is_answered:
            raise ObjectStoreFailed(f"listing {prefix}")
        return self._bucket.keys(prefix, self._bucket.now_ms)

    def wait(self, requests: "Collection[Future[None]]", ms: int) -> None:
        """Let time pass until a request ends."""
        if any(each.done() for each in requests):
            return
        until_ms = self._bucket.now_ms + ms
        due = [at_ms for at_ms, _ in self._slow]
        self._bucket.now_ms = min([until_ms, *due]) if requests else until_ms
        for each in [each for each in self._slow if each[0] <= self._bucket.now_ms]:
            self._slow.remove(each)
            each[1]()

    def close(self) -> None:
        """Do nothing."""

    def _later(self, ms: int, future: "Future[Any]", do: Callable[[], None]) -> None:
        def end() -> None:
            do()
            future.set_result(None)

        if self._passes_time:
            self._slow.append((self._bucket.now_ms + ms, end))
        else:
            end()

    def _begin(self, request: str, key: str) -> ObjectFault:
        self.requests.append((request, key))
        return self.choose(request)

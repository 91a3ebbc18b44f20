"""A connection's side of a hot handler, for tests that need no socket."""

from collections.abc import Callable

from kledger.gateway.net.connection_state import ByteBudget, ConnectionState, ResponseSlot
from kledger.gateway.net.ports import ResponseFrame
from kledger.gateway.peer import Peer


class OpenMeter:
    """A quota without limit."""

    fetch_bytes_max = 1 << 30

    def admits_fetched(self, size: int) -> bool:
        return size <= self.fetch_bytes_max


class Room:
    """Room for responses, as much as a test wants; records what waits and what is reserved."""

    def __init__(self) -> None:
        self.fetch_bytes_max = 1 << 30
        self.is_full = False
        self.waiting: list[Callable[[], None]] = []
        self.reserved = 0

    def admitted_bytes(self) -> int:
        return 0 if self.is_full else self.fetch_bytes_max

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        self.waiting.append(resume)

    def reserve(self, size: int) -> None:
        self.reserved = size

    def release(self) -> None:
        self.reserved = 0


class RecordingPort:
    """Keeps slots in order as a connection does, and records what leaves."""

    unit_kind = "connection"
    unit_name = "test"

    def __init__(self) -> None:
        self.connection_id = 1
        self.peer = Peer("test")
        self.peer_host = "test"
        self.retained_slot: ResponseSlot | None = None
        self.throttle_time_ms = 0
        self.meter = OpenMeter()
        self.fetch_space = Room()
        self.state = ConnectionState(ByteBudget(1 << 30))
        self.sent: list[bytes] = []
        self.failures: list[str] = []
        self.to_finish: list[ResponseSlot] = []
        self.is_aborted = self.is_closed = False
        self.faults: list[Exception] = []

    def open_slot(self, slot: ResponseSlot, *, is_exclusive: bool) -> None:
        self.state.open(slot, 1, is_exclusive)

    def slot_ready(self, slot: ResponseSlot) -> None:
        assert slot.response is not None
        if self.state.advance():
            self.sent.append(b"".join(self.state.take_output()))

    def respond(self, response: ResponseFrame) -> None:
        self.sent.append(b"".join(response))

    def finish_at_tick_end(self, slot: ResponseSlot) -> None:
        self.to_finish.append(slot)

    def fail(self, reason: str) -> None:
        self.failures.append(reason)

    def abort(self) -> None:
        self.is_aborted = True

    def contain(self, error: Exception) -> None:
        self.faults.append(error)
        self.abort()

    def close_after_fault(self, error: Exception) -> None:
        self.abort()

    def end_tick(self) -> None:
        """Do what a connection does at the end of a tick."""
        to_finish, self.to_finish = self.to_finish, []
        for slot in to_finish:
            try:
                slot.finish()
            except Exception as error:  # noqa: BLE001 - as a connection does
                self.contain(error)

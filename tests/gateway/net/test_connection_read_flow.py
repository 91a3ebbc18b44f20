"""Pausing a socket: repeated calls, and calls after its last byte."""

import asyncio

from kledger.gateway.net.connection import ReadFlow


class Transport(asyncio.Transport):
    """Records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def test_the_transport_is_called_for_changes_only() -> None:
    transport, reading = Transport(), ReadFlow()
    reading.begin(transport)
    for change in (reading.resume, reading.pause, reading.pause, reading.resume, reading.resume):
        change()
    assert ["pause", "resume"] == transport.calls
    assert not reading.is_paused


def test_after_the_last_byte_the_transport_is_not_called() -> None:
    transport, reading = Transport(), ReadFlow()
    reading.begin(transport)
    reading.pause()
    reading.is_eof = True
    reading.resume()
    reading.pause()
    assert ["pause"] == transport.calls

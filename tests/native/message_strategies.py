"""Compaction strategies, as users write them; compute processes import this module."""

import os

import kledger


class NewestVersion:
    """Keeps the message with the highest version; after a removal any comes back."""

    def should_keep_left(self, previous: kledger.Message | None, current: kledger.Message) -> bool:
        return previous is not None and _version(previous) > _version(current)

    def on_skip(
        self, key: bytes, previous: kledger.Message | None, current: kledger.Message
    ) -> None:
        """Nothing is to be done."""


class Erratic:
    """Decides by everything that a message shows, without an order; after a removal any comes back.

    Readers of a compacted topic do not get removals, so nothing is asked then.
    """

    def should_keep_left(self, previous: kledger.Message | None, current: kledger.Message) -> bool:
        return previous is not None and (_sum(previous) + _sum(current)) % 3 == 0

    def on_skip(
        self, key: bytes, previous: kledger.Message | None, current: kledger.Message
    ) -> None:
        """Nothing is to be done."""


class Raising(NewestVersion):
    """Cannot compare."""

    def should_keep_left(self, previous: kledger.Message | None, current: kledger.Message) -> bool:
        raise OwnError(5, b"not a number")


class Leaving(NewestVersion):
    """Ends its process."""

    def should_keep_left(self, previous: kledger.Message | None, current: kledger.Message) -> bool:
        os._exit(3)


class OwnError(Exception):
    """An error that another process could not make again from its text."""

    def __init__(self, code: int, what: bytes) -> None:
        super().__init__(f"code {code}, {what!r}")


NEWEST = NewestVersion()
NOT_A_STRATEGY = 5


def _version(message: kledger.Message) -> int:
    return int(message.properties.get("v", 0))


def _sum(message: kledger.Message) -> int:
    parts = (
        message.key, message.value, message.offset, message.partition, message.topic,
        message.id.to_bytes()[:21], message.publish_timestamp, message.event_timestamp,
        message.headers, message.producer_name,
    )  # fmt: skip
    return sum(repr(parts).encode())

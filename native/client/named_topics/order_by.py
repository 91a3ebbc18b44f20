"""OrderBy: which channel a publisher sends a value to.

Rule: order is kept within a channel, so values that must stay in order need one order id; the
channel is the id modulo the number of channels. A value that is `Orderable` says its id itself,
whatever the option is.
Must not know: how values are sent.
"""

from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol, TypeAlias, runtime_checkable

from kledger.native.errors import IllegalArgument
from kledger.runtime.entropy import Entropy

ChooseId: TypeAlias = Callable[[Any], int]
"""Returns the order id of a value."""
IDS = 1 << 31
_GOLDEN = 0x9E3779B97F4A7C15
"""Spreads the idents of threads, which are addresses with many zeros at their end."""


@runtime_checkable
class Orderable(Protocol):
    """A value that says which others it must stay in order with."""

    def order_id(self) -> int:
        """Return the order id; values of one id are in one channel."""
        ...


class OrderBy:
    """An ordering option, made by one of the methods; `make` is for publishers."""

    def __init__(self, name: str, make: Callable[[Entropy], ChooseId]) -> None:
        self._name = name
        self.make = make

    def __repr__(self) -> str:
        return f"OrderBy.{self._name}"

    @classmethod
    def thread(cls) -> "OrderBy":
        """Keep the order of what one thread publishes; with asyncio, of the whole loop."""

        def make(entropy: Entropy) -> ChooseId:
            first = entropy.below(IDS)
            return lambda _: first + ((get_ident() * _GOLDEN & (1 << 64) - 1) >> 33)

        return cls("thread()", make)

    @classmethod
    def none(cls) -> "OrderBy":
        """Keep no order: any channel."""
        return cls("none()", lambda entropy: lambda _: entropy.below(IDS))

    @classmethod
    def id(cls, order_id: int) -> "OrderBy":
        """Keep the order of everything; the id pins the channel."""
        number = checked_id(order_id)
        return cls(f"id({order_id})", lambda _: lambda _value: number)

    @classmethod
    def value(cls, function: Callable[[Any], int]) -> "OrderBy":
        """Keep the order of values for which `function` returns the same id."""
        if not callable(function):
            raise IllegalArgument(f"OrderBy.value: expected a function, got {function!r}")
        return cls(f"value({function!r})", lambda _: lambda given: checked_id(function(given)))

    @classmethod
    def round_robin(cls) -> "OrderBy":
        """Use one channel after the other."""

        def make(entropy: Entropy) -> ChooseId:
            number = entropy.below(IDS)

            def choose(_: Any) -> int:
                nonlocal number
                number += 1
                return number

            return choose

        return cls("round_robin()", make)


def order_by(given: object) -> OrderBy:
    """Return the option that a caller gives: an OrderBy, "thread", "none" or "round_robin".

    Raises:
        IllegalArgument: it is none of them.
    """
    named = {"thread": OrderBy.thread, "none": OrderBy.none, "round_robin": OrderBy.round_robin}
    if isinstance(given, OrderBy):
        return given
    if isinstance(given, str) and given in named:
        return named[given]()
    raise IllegalArgument(
        f"order_by: expected an OrderBy or one of {', '.join(named)}, got {given!r}"
    )


def checked_id(given: object) -> int:
    """Return an order id. Raises IllegalArgument if it is no whole number."""
    if not isinstance(given, int):
        raise IllegalArgument(f"order id: expected a whole number, got {given!r}")
    return given

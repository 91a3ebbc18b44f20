"""Listeners are called one after the other; one that raises closes its own unit alone."""

from kledger.runtime.containment import Containment, NamedUnit
from kledger.runtime.listeners import Listeners
from kledger.runtime.manual_clock import ManualClock
from tests.contained import Contained


def fails() -> None:
    raise ValueError("broken")


def test_listeners_are_called_once_in_the_order_of_adding() -> None:
    listeners, called = Listeners(Containment(ManualClock())), list[str]()

    def first() -> None:
        called.append("first")

    def second() -> None:
        called.append("second")

    for listener in (first, second, first):
        listeners.add(listener)
    listeners.notify()
    listeners.remove(first)
    listeners.remove(first)
    listeners.notify()
    assert ["first", "second", "second"] == called
    assert 1 == len(listeners)


def test_listeners_of_a_unit_are_distinguished_from_others() -> None:
    listeners, own = Listeners(Containment(ManualClock())), NamedUnit("partition", "orders-0")
    assert not listeners.has_others(own)
    listeners.add(fails, own)
    assert not listeners.has_others(own)
    listeners.add(print)
    assert listeners.has_others(own)


def test_listener_that_raises_closes_its_unit_and_others_are_called(contained: Contained) -> None:
    containment, called = Containment(ManualClock()), list[str]()
    listeners = Listeners(containment)
    unit = NamedUnit("connection", "of 10.0.0.1", lambda: listeners.remove(fails))
    listeners.add(fails, unit)
    listeners.add(lambda: called.append("last"))
    listeners.notify()
    listeners.notify()
    assert ["last", "last"] == called
    assert {'contained_faults{unit="connection"}': 1} == containment.metrics.snapshot()
    assert ["a fault here closes connection of 10.0.0.1"] == contained.messages


def test_listener_without_a_unit_is_counted_under_its_name(contained: Contained) -> None:
    listeners = Listeners(Containment(ManualClock()))
    listeners.add(fails)
    listeners.notify()
    assert ["a fault here closes listener fails"] == contained.messages

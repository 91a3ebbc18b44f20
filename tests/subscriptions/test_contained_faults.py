"""A fault in dispatching closes its subscription, which can be opened again; others continue."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from kledger.subscriptions.dispatch.dispatcher import Dispatcher
from kledger.subscriptions.errors import SubscriptionFailed
from kledger.subscriptions.model import ConsumerOptions, Delivery, SubscriptionType
from tests.contained import Contained
from tests.subscriptions.partition_fixture import Client, PartitionFixture

FAULTS: dict[str, Callable[[Client, pytest.MonkeyPatch], None]] = {
    "the task that delivers": lambda client, patch: fail_once(patch, "_dispatch_buffered"),
    "the tasks that read": lambda client, patch: fail_once(patch, "_is_paused"),
    "the callback of a consumer": lambda client, patch: setattr(client, "fault_in", "deliver"),
}


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the next call of a method of the dispatcher of "s" raise."""
    method = getattr(Dispatcher, name)

    def fails(self: Dispatcher, *arguments: object) -> object:
        if self._cursor.name != "s":
            return method(self, *arguments)
        monkeypatch.setattr(Dispatcher, name, method)
        raise RuntimeError("injected")

    monkeypatch.setattr(Dispatcher, name, fails)


@pytest.mark.parametrize("wanted", list(SubscriptionType))
@pytest.mark.parametrize("fault", FAULTS)
async def test_subscription_closed_by_a_fault_redelivers_when_opened_again(
    fixture: PartitionFixture,
    wanted: SubscriptionType,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    contained: Contained,
) -> None:
    """It ended the server."""
    await fixture.add("a", "b")
    client, other = Client(), Client("other")
    await client.join(await fixture.subscription("s"), wanted)
    await other.join(await fixture.subscription("other"), wanted)
    assert list("ab") == await client.got(2)
    assert list("ab") == await other.got(2)
    await client.acknowledge("a")
    FAULTS[fault](client, monkeypatch)
    await fixture.add("c")
    await fixture.quiet()
    assert [SubscriptionFailed] == [type(error) for error in client.ends]
    assert ["a fault here closes subscription s of orders"] == contained.messages
    again = Client("again")
    await again.join(await fixture.subscription("s"), wanted)
    assert list("bc") == await again.got(2)
    await again.acknowledge("b", "c")
    assert [] == await fixture.unacknowledged("s")
    assert (list("abc"), []) == (await other.got(3), other.ends)


@pytest.mark.parametrize("wanted", list(SubscriptionType))
async def test_nothing_runs_between_a_fault_and_the_end_of_the_subscription(
    fixture: PartitionFixture, wanted: SubscriptionType, contained: Contained
) -> None:
    """The other task of the dispatcher delivered on, past a record that its consumer never got."""
    subscription = await fixture.subscription("s")
    loop, was_closed = asyncio.get_running_loop(), list[bool]()

    def deliver(deliveries: Sequence[Delivery]) -> None:
        loop.call_soon(lambda: was_closed.append(subscription.is_closed))
        raise RuntimeError("injected")

    options = ConsumerOptions(name="c")
    hold = await subscription.add_consumer(
        options, wanted, deliver=deliver, on_ended=lambda error: None
    )
    hold.add_permits(1)
    await fixture.add("a")
    await fixture.quiet()
    assert [True] == was_closed
    assert ["a fault here closes subscription s of orders"] == contained.messages


async def test_fault_in_the_failover_timer_closes_the_subscription(
    fixture: PartitionFixture, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    await fixture.add("a")
    subscription = await fixture.subscription("s")
    first, second = Client("b"), Client("a")
    await first.join(subscription, SubscriptionType.FAILOVER, failover_delay_ms=1_000)
    assert ["a"] == await first.got(1)
    fail_once(monkeypatch, "_rewind_cursor")
    await second.join(subscription, SubscriptionType.FAILOVER)
    fixture.clock.advance(1_000)
    await fixture.quiet()
    assert [SubscriptionFailed] * 2 == [type(each.ends[0]) for each in (first, second)]
    again = Client("again")
    await again.join(await fixture.subscription("s"), SubscriptionType.FAILOVER)
    assert ["a"] == await again.got(1)
    assert ["a fault here closes subscription s of orders"] == contained.messages


async def test_fault_in_on_ended_does_not_affect_other_consumers(
    fixture: PartitionFixture, contained: Contained
) -> None:
    subscription = await fixture.subscription("s")
    broken, other = Client("broken"), Client("other")
    broken.fault_in = "ended"
    for client in (broken, other):
        await client.join(subscription, SubscriptionType.SHARED)
    subscription.disconnect_all()
    assert ([None], 0) == (other.ends, subscription.consumer_count)
    assert ["a fault here closes consumer broken"] == contained.messages

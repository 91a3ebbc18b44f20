"""A client's own changes of a position, and the links that they end."""

import asyncio
from dataclasses import dataclass

import pytest

from kledger.native.broker import ConsumerRequest
from kledger.native.rpc.pending_resets import PendingResets
from kledger.subscriptions.model import SubscriptionType

REQUEST = ConsumerRequest(
    topic="orders", partition=1, subscription="s", type=SubscriptionType.SHARED
)


@dataclass(eq=False)
class Link:
    request: ConsumerRequest = REQUEST
    reset_count: int = 0

    def end_by_reset(self) -> None:
        self.reset_count += 1


@pytest.mark.parametrize(
    ("topic", "subscription", "partition", "expected"),
    [
        ("orders", "s", None, 1),
        ("orders", "s", 1, 1),
        ("persistent://public/default/orders", "s", 1, 1),
        ("orders", "s", 0, 0),
        ("orders", "t", None, 0),
        ("others", "s", None, 0),
    ],
)
async def test_change_ends_the_links_that_it_concerns(
    topic: str, subscription: str, partition: int | None, expected: int
) -> None:
    changes, link = PendingResets(), Link()
    with changes.running(topic, subscription, partition, [link]):
        assert 0 == link.reset_count
    assert expected == link.reset_count


async def test_failed_reset_ends_no_link_and_blocks_no_opening() -> None:
    changes, link = PendingResets(), Link()
    with pytest.raises(ValueError), changes.running("orders", "s", None, [link]):  # noqa: PT011
        raise ValueError
    await changes.wait_before_opening(REQUEST)
    assert 0 == link.reset_count


async def test_opening_waits_for_the_changes_that_run_and_not_for_later_ones() -> None:
    changes, link = PendingResets(), Link()
    with changes.running("others", "s", None, []):
        await changes.wait_before_opening(REQUEST)
    with changes.running("orders", "s", None, []):
        waiting = asyncio.ensure_future(changes.wait_before_opening(REQUEST))
        await asyncio.sleep(0)
        assert not waiting.done()
    with changes.running("orders", "s", 1, []):
        await waiting
        changes.note_opening(link)
        assert 0 == link.reset_count
    assert 1 == link.reset_count, "it may have been opened before that change"

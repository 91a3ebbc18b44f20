"""Membership: whether a subscriber is in its group, and which channels it owns there.

Rule: a subscriber that is disconnected, by a timeout, a lost connection or the application, loses
its channels, and joins again with the id that it had; one that is being closed does not. Listeners
are called about lost channels before they are called about owned ones.
Must not know: elements, requests.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from kledger.named_topics.model import ChannelAllocation, SubscriberJoin
from kledger.native.client.close_once import CloseOnce
from kledger.native.client.named_topics.ownership_listeners import (
    ASSIGNED,
    LOST,
    REVOKED,
    OwnershipListeners,
)
from kledger.native.client.named_topics.subscriber_options import SubscriberOptions
from kledger.native.client.named_topics.subscriber_state import SubscriberState
from kledger.native.client.named_topics.topic_view import TopicOfChannels
from kledger.native.client.reconnect import open_with_retries
from kledger.native.client.services import ClientServices
from kledger.native.errors import KledgerError, SubscriberGroupDestroyed, TopicNotFound


class Membership:
    """Of one subscriber.

    Attributes:
        id: of the subscriber in its group; 0: it has never joined.
        group: its name, the generated one of an anonymous subscriber.
        is_connected: whether it is in the group, by the server's last answer.
        is_left: the application has disconnected it, and not received since.
        failure: why it can never join again.
        has_group_functions: the server applies functions of the group to its elements.
    """

    def __init__(
        self,
        services: ClientServices,
        topic: TopicOfChannels,
        options: SubscriberOptions,
        state: SubscriberState,
        closing: CloseOnce,
    ) -> None:
        """Prepare; `join` asks the server.

        Args:
            services: the client's.
            topic: with the group.
            options: of the subscriber.
            state: its channels.
            closing: whether it is being closed.
        """
        self.id = 0
        self.group = options.group
        self.is_connected = False
        self.is_left = False
        self.failure: KledgerError | None = None
        self.has_group_functions = False
        self.on_changed: Callable[[], None] = _nothing
        """Called when it has joined, or is disconnected."""
        self._services = services
        self._topic = topic
        self._options = options
        self._state = state
        self._closing = closing
        self._listeners = OwnershipListeners(options.listeners, services.supervisor)
        self._connecting = asyncio.Lock()

    @property
    def may_join(self) -> bool:
        """Whether it is not being closed."""
        return not self._closing.has_begun

    async def join(self) -> None:
        """Join the group. Raises the server's error."""
        options = self._options
        allocation = await self._services.broker.join_subscriber(
            self._topic.name,
            SubscriberJoin(options.group, self.id, options.filter.name, options.converter.name),
        )
        self.id, self.group = allocation.subscriber, allocation.group
        self.has_group_functions = bool(allocation.filter_name or allocation.converter_name)
        self.is_connected, self.is_left = True, False
        self.allocate(allocation)
        self.on_changed()

    async def connect(self) -> None:
        """Join again if it is disconnected. Raises the error of the last attempt."""
        async with self._connecting:
            if not self.is_connected and self.may_join:
                try:
                    await open_with_retries(
                        self._services,
                        self.join,
                        is_first=False,
                        retry_ms=self._options.reconnect_timeout_ms,
                    )
                except (SubscriberGroupDestroyed, TopicNotFound) as error:
                    self.failure = error
                    raise

    def allocate(self, allocation: ChannelAllocation) -> None:
        """Take over an allocation."""
        change = self._state.allocate(allocation)
        if change.revoked:
            self._listeners.call(REVOKED, change.revoked)
        if change.is_changed:
            self._listeners.call(ASSIGNED, self._state.channels)

    def disconnected(self) -> None:
        """Lose all channels: it is not in the group now."""
        self.is_connected = False
        lost = self._state.disconnect()
        if lost:
            self._listeners.call(LOST, lost)
        self.on_changed()

    async def disconnect(self) -> None:
        """Leave the group for now; an anonymous group would end, and keeps its subscriber."""
        self.is_left = True
        if self.is_connected:
            self.disconnected()
            if self._options.group:
                await self.leave()

    async def leave(self) -> None:
        """Leave the group; if the request fails, the server's timeout ends the membership."""
        with suppress(KledgerError):
            await self._services.broker.leave_subscriber(self._topic.name, self.group, self.id)

    async def close(self) -> None:
        """Leave for good, and wait for the listeners.

        An anonymous subscriber did not leave when the application disconnected it. One that has
        lost its server does not wait for it, and is ended by the server after a while.
        """
        if self.is_connected or (self.is_left and not self._options.group):
            self.is_connected = False
            await self.leave()
        self._state.disconnect()
        await self._listeners.finish()


def _nothing() -> None:
    """Do nothing: nothing depends on it yet."""

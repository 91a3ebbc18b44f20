"""What tests of this room share: a partition with subscriptions."""

from collections.abc import AsyncIterator

import pytest

from tests.subscriptions.dispatch.dispatcher_fixture import Scene
from tests.subscriptions.partition_fixture import PartitionFixture, house


@pytest.fixture
async def room() -> AsyncIterator[PartitionFixture]:
    async with house() as made:
        yield made


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A cursor that a dispatcher may read."""
    made = Scene()
    await made.open()
    yield made
    await made.close()

"""What tests of this package share: a partition with subscriptions."""

from collections.abc import AsyncIterator

import pytest

from tests.subscriptions.dispatch.dispatcher_fixture import Scene
from tests.subscriptions.partition_fixture import PartitionFixture, partition_fixture


@pytest.fixture
async def fixture() -> AsyncIterator[PartitionFixture]:
    async with partition_fixture() as made:
        yield made


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A cursor that a dispatcher may read."""
    made = Scene()
    await made.open()
    yield made
    await made.close()

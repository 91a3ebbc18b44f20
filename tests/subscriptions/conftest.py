"""What tests of this room share: a partition with subscriptions."""

from collections.abc import AsyncIterator

import pytest

from tests.subscriptions.house import House, house


@pytest.fixture
async def room() -> AsyncIterator[House]:
    async with house() as made:
        yield made

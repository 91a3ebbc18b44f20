"""UpdateFeatures: levels are fixed here, so only what holds already can be set."""

import pytest

from kledger.gateway.features import FEATURES
from kledger.gateway.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.gateway.running import running_gateway

INVALID_UPDATE_VERSION = 95
(TRANSACTIONS,) = (each for each in FEATURES if each.name == "transaction.version")


def update(name: str, level: int) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=name, max_version_level=level)


@pytest.mark.parametrize("version", range(3))
async def test_the_level_that_holds_can_be_set(version: int) -> None:
    changes = [update(each.name, each.level) for each in FEATURES]
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(UpdateFeaturesRequest(feature_updates=changes), version)
        assert (0, None) == (answer.error_code, answer.error_message)
        named = [(each.feature, each.error_code) for each in answer.results]
        assert ([] if version == 2 else [(each.name, 0) for each in FEATURES]) == named


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "name_and_level",
    [
        ("nope", 1),
        ("transaction.version", 1),
        ("transaction.version", 3),
        ("transaction.version", -1),
    ],
)
async def test_any_other_level_refuses_the_request(
    name_and_level: tuple[str, int], version: int
) -> None:
    changes = [update(TRANSACTIONS.name, TRANSACTIONS.level), update(*name_and_level)]
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(UpdateFeaturesRequest(feature_updates=changes), version)
        assert (INVALID_UPDATE_VERSION, []) == (answer.error_code, answer.results)
        assert name_and_level[0] in answer.error_message


@pytest.mark.parametrize("upgrade_type", [-1, 0, 4])
async def test_what_is_neither_up_nor_down_is_refused(upgrade_type: int) -> None:
    change = update(TRANSACTIONS.name, TRANSACTIONS.level)
    change.upgrade_type = upgrade_type
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(UpdateFeaturesRequest(feature_updates=[change]), 1)
        assert (INVALID_UPDATE_VERSION, []) == (answer.error_code, answer.results)

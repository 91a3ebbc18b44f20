"""Variants of a good request: every field once, one at a time, as the version has them."""

from compat_tests.differential.recipes import RECIPES
from compat_tests.differential.variants import filled, variants
from kledger.gateway.served_apis import HANDLERS
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.messages.k09_offset_fetch import OffsetFetchRequest
from kledger.gateway.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
)

SAID_BY_HAND = {0, 1, 17, 18, 36, 48, 49, 71, 72, 74}
"""Records, versions, logins, and what depends on all that was asked before."""
SETTING = {"resource_type": 2, "resource_name": "t", "name": "retention.ms", "value": "1"}


def labels(version: int = 1) -> list[str]:
    good = filled(IncrementalAlterConfigsRequest, version, SETTING)
    return [one.label for one in variants(good, version, ("nobody",))]


def test_every_api_has_a_recipe_or_is_said_by_hand() -> None:
    keys = [one.key for one in RECIPES]
    assert sorted([*keys, *SAID_BY_HAND]) == sorted(one.key for one in HANDLERS)


def test_a_good_request_has_what_is_known_and_one_of_each() -> None:
    good = filled(IncrementalAlterConfigsRequest, 1, SETTING)
    ((config,),) = [one.configs for one in good.resources]
    assert ("t", "retention.ms", "1", 0) == (
        good.resources[0].resource_name, config.name, config.value, config.config_operation,
    )  # fmt: skip


def test_fields_of_other_versions_stay_as_they_are() -> None:
    known = {"group_id": "g", "name": "t", "partition_indexes": [0]}
    old, new = (filled(OffsetFetchRequest, version, known) for version in (7, 8))
    assert ("g", [], "", "g") == (
        old.group_id, old.groups, new.group_id, new.groups[0].group_id,
    )  # fmt: skip


def test_each_kind_of_field_goes_wrong_in_its_own_way() -> None:
    found = labels()
    assert {
        "resources=[]",
        "resources twice",
        "resources.resource_name=''",
        "resources.resource_name='nobody'",
        "resources.configs.config_operation=127",
        "resources.configs.value=null",
        "validate_only=True",
    } <= set(found)
    assert len(found) == len(set(found))
    assert "resources.resource_type=2" not in found, "that is the good one"


def test_one_thing_changes_and_the_good_request_stays() -> None:
    good = filled(IncrementalAlterConfigsRequest, 1, SETTING)
    written = set()
    for variant in variants(good, 1, ("nobody",)):
        request = filled(IncrementalAlterConfigsRequest, 1, SETTING)
        variant.change(request)
        frame = encode(request, 1)
        assert request == decode(IncrementalAlterConfigsRequest, 1, memoryview(frame))
        written.add(frame)
    assert len(labels()) == len(written)
    assert encode(good, 1) not in written

"""The list of handlers agrees with the modules, and with Kafka 4.3."""

from importlib import import_module
from pathlib import Path

import pytest

import kledger.gateway.handlers
from kledger.gateway.served_apis import HANDLERS, HANDLERS_BY_KEY, HandlerSpec

OWN_MODULE = [spec for spec in HANDLERS if not spec.is_single_node]
"""The others are rows of one table, which `test_single_node` compares with the list."""


@pytest.mark.parametrize("spec", HANDLERS, ids=lambda spec: spec.module)
def test_every_listed_handler_loads(spec: HandlerSpec) -> None:
    handler = spec.load()
    assert any(hasattr(handler, name) for name in ("handle", "bind", "make_handler"))
    assert spec.module.startswith(f"k{spec.key:02}_")


@pytest.mark.parametrize("spec", OWN_MODULE, ids=lambda spec: spec.module)
def test_modules_have_the_versions_of_the_list(spec: HandlerSpec) -> None:
    module = spec.load()
    versions = module.KEY, module.MIN_VERSION, module.MAX_VERSION
    assert versions == (spec.key, spec.min_version, spec.max_version)


@pytest.mark.parametrize("spec", HANDLERS, ids=lambda spec: spec.module)
def test_served_versions_have_a_schema(spec: HandlerSpec) -> None:
    messages = import_module(f"kledger.gateway.wire.messages.{spec.module}")
    for message in (messages.REQUEST, messages.RESPONSE):
        assert spec.key == message.__api__.key
        assert spec.min_version in message.__api__.versions
        assert spec.max_version in message.__api__.versions


def test_every_handler_module_is_listed() -> None:
    folder = Path(kledger.gateway.handlers.__file__).parent
    present = {path.stem for path in folder.glob("k*.py")}
    assert present == {spec.module for spec in OWN_MODULE}


def test_keys_are_unique_and_ascending() -> None:
    keys = [spec.key for spec in HANDLERS]
    assert keys == sorted(set(keys)) == list(HANDLERS_BY_KEY)


def test_row_3_produce_alone_is_advertised_below_what_is_served() -> None:
    below = [spec.key for spec in HANDLERS if spec.advertised_min != spec.min_version]
    assert [0] == below
    assert 0 == HANDLERS_BY_KEY[0].advertised_min

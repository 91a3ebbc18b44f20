"""Impossible lengths and counts, in every field of every message, in every version."""

from collections.abc import Callable
from functools import partial

import pytest

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.fetch_codec import parse_fetch_request
from kledger.gateway.wire.messages.k00_produce import ProduceRequest
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.produce_codec import parse_produce_request
from kledger.gateway.wire.schema import ApiMessage
from tests.gateway.wire.facts import messages, versions
from tests.gateway.wire.lengths import STEPPED_OVER_BY_FETCH, LengthField, SampleBody
from tests.gateway.wire.random_messages import sample, settle

BY_HAND: list[tuple[type[ApiMessage], Callable[[memoryview, int], object]]] = [
    (ProduceRequest, parse_produce_request),
    (FetchRequest, parse_fetch_request),
]
every_message = pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)


def refusal(parse: Callable[[], object]) -> tuple[str, int, str] | None:
    """Return which field of which message was refused, None if nothing was."""
    try:
        parse()
    except MalformedMessage as error:
        return error.message, error.version, error.field
    return None


@every_message
def test_no_length_of_a_body_is_missed(cls: type[ApiMessage]) -> None:
    for version in versions(cls):
        assert encode(settle(sample(cls), version), version) == bytes(SampleBody(cls, version).data)


@every_message
def test_impossible_length_anywhere_is_refused_by_its_field(cls: type[ApiMessage]) -> None:
    for version in versions(cls):
        for length, body in SampleBody(cls, version).broken():
            got = refusal(partial(decode, cls, version, body))
            assert (cls.__name__, version, length.path) == got, shown(length, body)


@pytest.mark.parametrize(("cls", "parse"), BY_HAND, ids=["Produce", "Fetch"])
def test_impossible_length_is_refused_by_parsers_written_by_hand(
    cls: type[ApiMessage], parse: Callable[[memoryview, int], object]
) -> None:
    for version in versions(cls):
        for length, body in SampleBody(cls, version).broken():
            if length.path not in STEPPED_OVER_BY_FETCH:
                got = refusal(partial(parse, memoryview(body), version))
                assert (cls.__name__, version, length.path) == got, shown(length, body)


def shown(length: LengthField, body: bytes) -> str:
    """Say what was put where."""
    return f"{length.path} at {length.start}: {body[length.start : length.stop + 4].hex(' ')}"

"""The table of calls: held to the methods of the broker and to the messages of the .proto file."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.native.broker import EARLIEST, LATEST, Broker, RecordPosition, SeekTarget
from kledger.native.errors import InvalidArgument
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.protocol import CALLS
from kledger.native.rpc.unary_calls import UNARY, UnaryCall, UnaryCalls
from tests.native.recording_broker import RecordingBroker

LINKS = {"open_producer", "open_consumer", "close"}
"""What the broker has beside the calls with one answer."""
ROWS = list(UNARY.values())
BY_NAME = pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
Row = UnaryCall[..., Any]

INT64 = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: INT64,
    bool: st.booleans(),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
}


def any_value(hint: Any) -> st.SearchStrategy[Any]:
    """Draw values of a type of the interface."""
    if hint in SCALARS:
        return SCALARS[hint]
    if hint == SeekTarget:
        return any_value(RecordPosition) | INT64 | st.sampled_from([EARLIEST, LATEST])
    kind, arguments = get_origin(hint), get_args(hint)
    if kind in {Union, UnionType}:
        return st.one_of([any_value(each) for each in arguments])
    if kind in {list, Sequence}:
        return st.lists(any_value(arguments[0]), max_size=3)
    if kind in {dict, Mapping}:
        return st.dictionaries(any_value(arguments[0]), any_value(arguments[1]), max_size=3)
    if kind is tuple and arguments[-1] is ...:
        return st.lists(any_value(arguments[0]), max_size=3).map(tuple)
    if kind is tuple:
        return st.tuples(*map(any_value, arguments))
    build: Callable[..., Any] = hint  # a dataclass or a named tuple
    return st.builds(build, **{n: any_value(each) for n, each in get_type_hints(hint).items()})


def parameters_of(row: Row) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(row.method).items() if name != "return"}


def test_every_method_of_the_broker_with_one_answer_has_one_row() -> None:
    methods = {name for name, _ in inspect.getmembers(Broker, inspect.isfunction)}
    rows = {name: each for name, each in vars(UnaryCalls).items() if isinstance(each, UnaryCall)}
    assert {each for each in methods - LINKS if not each.startswith("_")} == set(rows)
    assert [] == [name for name, row in rows.items() if row.method is not getattr(Broker, name)]


def test_every_call_of_the_proto_file_with_one_answer_has_one_row() -> None:
    unary = {name for name, call in CALLS.items() if not call.is_stream}
    assert unary - {"Hello"} == set(UNARY)
    assert len(UNARY) == sum(isinstance(each, UnaryCall) for each in vars(UnaryCalls).values())


@BY_NAME
def test_parameters_are_the_fields_of_the_request(row: Row) -> None:
    assert list(parameters_of(row)) == [
        each.name for each in CALLS[row.name].request.DESCRIPTOR.fields
    ]


@BY_NAME
@given(data=st.data())
def test_any_arguments_arrive_as_they_were(row: Row, data: st.DataObject) -> None:
    arguments = {name: data.draw(any_value(hint)) for name, hint in parameters_of(row).items()}
    sent = row.request(arguments).SerializeToString()
    assert arguments == row.arguments_of(CALLS[row.name].request.FromString(sent))


@BY_NAME
@given(data=st.data())
def test_any_result_arrives_as_it_was(row: Row, data: st.DataObject) -> None:
    result = data.draw(any_value(get_type_hints(row.method)["return"]))
    sent = row.response(result).SerializeToString()
    assert result == row.result(CALLS[row.name].response.FromString(sent))


@BY_NAME
def test_method_of_the_client_is_that_of_the_broker(row: Row) -> None:
    name = row.method.__name__
    method = getattr(RpcClient, name)
    assert inspect.signature(row.method) == inspect.signature(method)
    assert inspect.getdoc(row.method) == inspect.getdoc(method)


@BY_NAME
def test_call_that_sets_a_position_names_a_subscription(row: Row) -> None:
    assert not row.sets_position or {"topic", "name"} <= set(parameters_of(row))


def test_exactly_resets_skips_and_cleared_backlogs_set_positions() -> None:
    setting = {row.name for row in ROWS if row.sets_position}
    assert {"ResetSubscription", "SkipMessages", "ClearBacklog"} == setting


def test_arguments_are_bound_as_by_the_method() -> None:
    row = UnaryCalls.lookup
    assert {"topic": "t", "create": True} == row.arguments("t", create=True)
    with pytest.raises(TypeError):
        row.arguments("t", True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        row.arguments("t")  # type: ignore[call-arg]


async def test_broker_is_called_with_positional_and_keyword_arguments() -> None:
    broker = RecordingBroker()
    arguments = {"topic": "t", "name": "s", "target": 7, "partition": 0, "inclusive": True}
    row = UnaryCalls.reset_subscription
    assert b"" == (await row.serve(broker, row.request(arguments))).SerializeToString()
    assert [("reset_subscription", "t", "s", 7, 0, True)] == broker.calls


async def test_request_without_a_target_is_refused() -> None:
    broker = RecordingBroker()
    with pytest.raises(InvalidArgument):
        await UNARY["CreateSubscription"].serve(broker, CALLS["CreateSubscription"].request())
    assert [] == broker.calls

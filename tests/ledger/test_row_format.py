"""Rows by declaration: the bytes, the versions, and one error that says which row and why."""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.errors import Corrupt, UnreadableRow
from kledger.ledger.row_format import (
    BYTES32,
    FLAG,
    I16,
    I32,
    I64,
    NO_VERSION,
    NULLABLE_TEXT32,
    TEXT16,
    TEXT32,
    TEXT_REST,
    U8,
    U16,
    U32,
    U64,
    UUID16,
    RowFormat,
    RowKey,
    RowLayout,
    array,
    converted,
    json_rest,
    literal,
    mapping,
    optional,
)

TOPIC_ID = UUID(int=7)


class Range(NamedTuple):
    """Of fixed width."""

    first: int
    last: int


@dataclass(frozen=True)
class Part:
    """Of no fixed width."""

    size: int
    label: str = ""


@dataclass(frozen=True)
class Thing:
    """Has a field of each kind."""

    name: str
    topic_id: UUID = TOPIC_ID
    is_open: bool = False
    rack: str | None = None
    content: bytes = b""
    ranges: tuple[Range, ...] = ()
    parts: tuple[Part, ...] = ()
    last: Part | None = None
    labels: frozenset[str] = frozenset()
    by_name: tuple[tuple[str, int], ...] = ()
    rest: str = ""


PART = RowLayout(Part, size=I32, label=TEXT16)
THINGS = RowFormat[Thing](
    "thing",
    {
        1: RowLayout(lambda name, text: Thing(name, rest=text), text=TEXT32),
        2: RowLayout(
            Thing,
            is_open=FLAG,
            topic_id=UUID16,
            rack=NULLABLE_TEXT32,
            content=BYTES32,
            ranges=array(RowLayout(Range, first=I64, last=I32), count=U8),
            parts=array(PART),
            last=optional(PART),
            labels=array(TEXT16, make=frozenset, order=sorted),
            by_name=converted(mapping(TEXT16, U32), dict, lambda items: tuple(items.items())),
            rest=TEXT_REST,
        ),
    },
    given=("name",),
)
INTS = st.integers(0, 2**31 - 1)
TEXTS = st.text(max_size=5)
PARTS = st.builds(Part, INTS, TEXTS)
things = st.builds(
    Thing,
    name=TEXTS,
    topic_id=st.uuids(),
    is_open=st.booleans(),
    rack=st.none() | TEXTS,
    content=st.binary(max_size=5),
    ranges=st.lists(st.builds(Range, INTS, INTS), max_size=3).map(tuple),
    parts=st.lists(PARTS, max_size=3).map(tuple),
    last=st.none() | PARTS,
    labels=st.frozensets(TEXTS, max_size=3),
    by_name=st.dictionaries(TEXTS, INTS, max_size=3).map(lambda each: tuple(each.items())),
    rest=TEXTS,
)


@given(things)
def test_what_is_written_is_read(thing: Thing) -> None:
    assert thing == THINGS.decode(THINGS.encode(thing), thing.name)


def test_bytes_are_those_of_the_table() -> None:
    thing = Thing(
        "n",
        is_open=True,
        rack="r",
        content=b"c",
        ranges=(Range(1, 2),),
        parts=(Part(3, "p"),),
        labels=frozenset({"b", "a"}),
        by_name=(("k", 4),),
        rest="ü",
    )
    expected = (
        b"\x02\x01" + TOPIC_ID.bytes + b"\0\0\0\x01r" + b"\0\0\0\x01c"
        + b"\x01" + b"\0\0\0\0\0\0\0\x01" + b"\0\0\0\x02"
        + b"\0\0\0\x01" + b"\0\0\0\x03" + b"\0\x01p"
        + b"\xff\xff\xff\xff"
        + b"\0\0\0\x02" + b"\0\x01a" + b"\0\x01b"
        + b"\0\0\0\x01" + b"\0\x01k" + b"\0\0\0\x04"
        + b"\xc3\xbc"
    )  # fmt: skip
    assert expected == THINGS.encode(thing)


def test_an_older_version_is_read_and_the_newest_written() -> None:
    thing = THINGS.decode(b"\x01\0\0\0\x03old", "n")
    assert Thing("n", rest="old") == thing
    assert b"\x02" == THINGS.encode(thing)[:1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"\x03\0", "thing row 'n': expected version 1 or 2, got 3"),
        (b"", "thing row 'n': expected version 1 or 2, got an empty row"),
        (b"\x01\0", "thing row 'n': expected more, got 2 bytes"),
        (b"\x01\0\0\0\x04old", "thing row 'n': expected 9 bytes, got 8"),
        (b"\x01\0\0\0\x02old", "thing row 'n': 1 bytes too many"),
        (b"\x01\0\0\0\x01\xff", "thing row 'n': 'utf-8' codec can't decode"),
    ],
)
def test_an_unreadable_row_says_which_it_is_and_why(row: bytes, message: str) -> None:
    with pytest.raises(UnreadableRow) as caught:
        THINGS.decode(row, "n")
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, Corrupt)


@given(things, st.data())
def test_a_row_that_is_cut_is_refused(thing: Thing, data: st.DataObject) -> None:
    row = RowFormat("thing", {1: RowLayout(Thing, name=TEXT16, parts=array(PART))}).encode(thing)
    size = data.draw(st.integers(0, len(row) - 1))
    with pytest.raises(UnreadableRow):
        RowFormat[Thing]("thing", {1: RowLayout(Thing, name=TEXT16, parts=array(PART))}).decode(
            row[:size]
        )


def test_a_value_that_its_class_refuses_makes_the_row_unreadable() -> None:
    states = RowFormat[str]("state", {1: converted(U8, "abc".index, "abc".__getitem__)})
    assert "b" == states.decode(states.encode("b"))
    with pytest.raises(UnreadableRow, match="state row 'x': "):
        states.decode(b"\x01\x03", which="x")


def test_arguments_are_written_and_read_beside_the_record() -> None:
    timed = RowFormat[tuple[int, Part]](
        "timed",
        {1: RowLayout(lambda at_ms, size: (at_ms, Part(size)), at_ms=I64, size=U16)},
        arguments=("at_ms",),
    )
    row = timed.encode(Part(5), 99)
    assert b"\x01" + (99).to_bytes(8, "big") + b"\0\x05" == row
    assert (99, Part(5)) == timed.decode(row)


def test_counts_may_stand_before_the_first_array() -> None:
    pairs = RowFormat[tuple[tuple[int, ...], tuple[int, ...]]](
        "pair",
        {1: RowLayout(lambda a, b: (a, b), a=array(U8), b=array(U8)).with_counts_first()},
        arguments=("a", "b"),
    )
    row = pairs.encode(None, (1, 2), (3,))
    assert b"\x01" + b"\0\0\0\x02\0\0\0\x01" + b"\x01\x02\x03" == row
    assert ((1, 2), (3,)) == pairs.decode(row)


def test_every_damaged_byte_behind_a_checksum_is_seen() -> None:
    guarded = RowFormat[str]("guarded", {4: TEXT16}, has_checksum=True)
    row = guarded.encode("abc")
    assert 4 == row[0]
    assert "abc" == guarded.decode(row)
    for index in range(len(row)):
        with pytest.raises(UnreadableRow, match="guarded row"):
            guarded.decode(row[:index] + bytes([row[index] ^ 1]) + row[index + 1 :])
        with pytest.raises(UnreadableRow, match="guarded row"):
            guarded.decode(row[:index])


def test_a_row_without_a_version_is_its_field_alone() -> None:
    numbers = RowFormat[int]("number", {NO_VERSION: U64})
    assert (7).to_bytes(8, "big") == numbers.encode(7)
    assert 7 == numbers.decode((7).to_bytes(8, "big"))
    settings = RowFormat[dict[str, int]]("settings", {NO_VERSION: json_rest(sort_keys=True)})
    assert b'{"a": 1, "b": 2}' == settings.encode({"b": 2, "a": 1})
    assert {"b": 2} == settings.decode(b'{"b":2}')
    for row in (b"", b"{", b"\xff"):
        with pytest.raises(UnreadableRow, match="settings row 'x'"):
            settings.decode(row, which="x")


def test_a_pause_comes_between_the_items_of_a_paced_mapping() -> None:
    pauses: list[int] = []
    paced = RowFormat[dict[int, int]]("paced", {1: mapping(U8, TEXT16, paced=2)})
    paced.encode({1: "a", 2: "b", 3: "c", 4: "d"}, pause=lambda: pauses.append(1))
    assert 2 == len(pauses)


def test_keys_have_a_prefix_and_refuse_another() -> None:
    keys = RowKey("thing", b"T\x01", size=I16, again=literal(b"!"), name=TEXT_REST)
    key = keys.encode(5, "ü")
    assert b"T\x01\0\x05!\xc3\xbc" == key
    assert (5, "ü") == keys.decode(key)
    with pytest.raises(UnreadableRow, match="of a thing row: another prefix"):
        keys.decode(b"U" + key[1:])

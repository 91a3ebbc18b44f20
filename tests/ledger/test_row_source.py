"""Functions that are made of fields: neighbours of fixed width are packed and read in one step."""

from kledger.ledger.row_source import RowReader, RowWriter


def test_neighbours_of_fixed_width_are_packed_in_one_step() -> None:
    writer = RowWriter({}, [0])
    writer.number("B", "1")
    writer.number("H", "value")
    assert writer.is_fixed
    writer.end("{}")
    assert 1 == len(writer.lines)
    assert b"\x01\0\x05" == writer.compile("def function(value):")(5)


def test_content_follows_what_waits() -> None:
    writer = RowWriter({}, [0])
    writer.number("B", "1")
    writer.content("value")
    assert not writer.is_fixed
    writer.end("{} + b'end'")
    assert b"\x01abend" == writer.compile("def function(value):")(b"ab")


def test_a_loop_adds_to_a_list() -> None:
    writer = RowWriter({}, [0])
    writer.number("B", "len(values)")
    writer.end_run()
    with writer.block("for value in values:"):
        writer.number("H", "value")
        writer.end_run()
    writer.end("{}")
    assert b"\x02\0\x01\0\x02" == writer.compile("def function(values):")([1, 2])


def test_a_reader_reads_neighbours_in_one_step() -> None:
    reader = RowReader({}, [0])
    reader.add("p = 0")
    first, size = reader.number("B"), reader.number("H")
    data = reader.take(size)
    reader.add(f"return {first}, {data}, p")
    assert 2 == len([line for line in reader.lines if "p +" in line])
    assert (9, b"ab", 5) == reader.compile("def function(row):")(b"\x09\0\x02abc")


def test_a_fork_shows_what_a_field_would_add() -> None:
    reader = RowReader({}, [0])
    fork = reader.fork()
    fork.number("B")
    assert fork.is_fixed
    assert [] == reader.lines

"""Records hold when durable, by the function that a start uses; failures change nothing."""

import asyncio
from collections.abc import Sequence

import pytest

from kledger.ledger import LedgerError, LedgerStore, Row, RowsDone, UnreadableRow
from kledger.ledger.record_table import Append, RecordRows, RecordTable, submit_together
from kledger.ledger.row_format import TEXT_REST, RowFormat, RowKey
from kledger.ledger.testing import FaultyEngine

KEYS = RowKey("word", b"word/", key=TEXT_REST)
WORDS = RowFormat[str]("word", {1: TEXT_REST})


def decode(key: bytes, row: bytes) -> tuple[str, str]:
    (name,) = KEYS.decode(key)
    return name, WORDS.decode(row, which=name)


def decode_key(key: bytes) -> str:
    (name,) = KEYS.decode(key)
    return str(name)


ROWS = RecordRows[str, str](
    prefix=KEYS.prefix,
    encode_key=KEYS.encode,
    encode=WORDS.encode,
    decode=decode,
    decode_key=decode_key,
)

OTHER_KEYS = RowKey("number", b"number/", key=TEXT_REST)


def decode_other(key: bytes, row: bytes) -> tuple[str, str]:
    (name,) = OTHER_KEYS.decode(key)
    return name, WORDS.decode(row, which=name)


OTHER_ROWS = RecordRows[str, str](
    prefix=OTHER_KEYS.prefix, encode_key=OTHER_KEYS.encode, encode=WORDS.encode, decode=decode_other
)


class Words(RecordTable[str, str]):
    """A table that records replays."""

    def __init__(self, store: LedgerStore) -> None:
        super().__init__(store, ROWS, self._note)
        self.replayed: list[tuple[str, str | None]] = []
        self.load()

    def _note(self, key: str) -> None:
        self.replayed.append((key, self.get(key)))


async def test_a_start_replays_what_was_replayed_when_it_became_durable() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        assert words.replayed == []
        for key, word in (("a", "1"), ("b", "2"), ("a", "3"), ("b", None)):
            assert await words.submit(key, word) is None
            assert word == words.get(key)
        assert [("a", "1"), ("b", "2"), ("a", "3"), ("b", None)] == words.replayed
        await store.put_rows([(b"other/x", b"")])
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        assert [("a", "3")] == words.replayed
        assert {"a": "3"} == words.durable


async def test_head_is_the_newest_submitted_record_and_the_durable_one_follows() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        hold = engine.hold_next("commit")
        written = [words.submit("a", "1"), words.submit("a", "2"), words.submit("b", "3")]
        assert ("2", None, 2) == (words.head("a"), words.get("a"), words.head_count())
        hold.release()
        for each in written:
            assert await each is None
        assert ("2", "2", 2) == (words.head("a"), words.get("a"), words.head_count())


async def test_a_failed_write_and_all_behind_it_are_not_replayed() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        assert await words.submit("a", "1") is None
        engine.fail_next("commit")
        written = [words.submit("a", "2"), words.submit("a", None)]
        assert words.head("a") is None
        for each in written:
            assert isinstance(await each, LedgerError)
        assert ("1", "1", 1) == (words.head("a"), words.get("a"), words.head_count())
        assert [("a", "1")] == words.replayed


async def test_a_record_of_a_caller_that_is_cancelled_is_replayed() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        hold = engine.hold_next("commit")
        caller = asyncio.ensure_future(_submitted(words, "a", "1"))
        await hold.reached()
        caller.cancel()
        hold.release()
        await store.flush()
        assert "1" == words.get("a")


async def _submitted(words: Words, key: str, word: str) -> None:
    await words.submit(key, word)


async def test_a_store_that_has_stopped_changes_nothing() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)
    assert isinstance(await words.submit("a", "1"), LedgerError)
    with pytest.raises(LedgerError):
        words.submit_lazily([("a", "1")])
    assert ({}, 0) == (words.durable, words.head_count())


async def test_a_fault_before_the_write_leaves_no_head() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)

        def fails(_rows: Sequence[Row], _done: RowsDone, /) -> None:
            raise RuntimeError("injected")

        append: Append = fails
        with pytest.raises(RuntimeError):
            words.submit("a", "1", append)
        assert (None, 0) == (words.head("a"), words.head_count())


async def test_a_write_that_ends_at_once_leaves_no_head() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)

        def ends(_rows: Sequence[Row], done: RowsDone, /) -> None:
            done(None)

        append: Append = ends
        assert await words.submit("a", "1", append) is None
        assert ("1", False) == (words.get("a"), words.is_writing)


async def test_a_fault_of_the_replay_is_the_callers() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:

        def fails(_key: str) -> None:
            raise RuntimeError("injected")

        words = RecordTable(store, ROWS, fails)
        assert isinstance(await words.submit("a", "1"), RuntimeError)
        assert "1" == words.get("a"), "its row is durable"


async def test_records_of_two_tables_hold_together_in_their_order() -> None:
    engine = FaultyEngine(None)
    order: list[str] = []
    async with LedgerStore.open(None, engine=engine) as store:
        words = RecordTable(store, ROWS, order.append)
        numbers = RecordTable(store, OTHER_ROWS, order.append)
        assert await words.submit("a", "1") is None
        before = engine.calls["commit"]
        moved = [words.change("a", None), numbers.change("b", "1"), words.change("c", "2")]
        ended = submit_together(moved)
        assert (None, "1", "2") == (words.head("a"), numbers.head("b"), words.head("c"))
        assert words.is_writing
        assert await ended is None
        assert ({"c": "2"}, {"b": "1"}) == (words.durable, numbers.durable)
        assert (1, False) == (engine.calls["commit"] - before, words.is_writing)
        assert ["a", "a", "b", "c"] == order
    async with LedgerStore.open(None, engine=engine) as store:
        numbers = RecordTable(store, OTHER_ROWS)
        numbers.load()
        assert ({"c": "2"}, {"b": "1"}) == (Words(store).durable, numbers.durable)


async def test_records_of_two_tables_fail_together() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words, numbers = Words(store), RecordTable(store, OTHER_ROWS)
        assert await words.submit("a", "1") is None
        engine.fail_next("commit")
        moved = [words.change("a", None), numbers.change("b", "1"), words.change("a", "2")]
        assert isinstance(await submit_together(moved), LedgerError)
        assert ({"a": "1"}, {}) == (words.durable, numbers.durable)
        assert ("1", None) == (words.head("a"), numbers.head("b"))


async def test_a_fault_before_the_write_of_several_leaves_their_heads() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)
        first = words.submit("a", "1")

        def fails(_rows: Sequence[Row], _done: RowsDone, /) -> None:
            raise RuntimeError("injected")

        append: Append = fails
        with pytest.raises(RuntimeError):
            submit_together([words.change("a", "2"), words.change("a", "3")], append)
        assert "1" == words.head("a")
        assert await first is None
        assert ("1", "1", 1) == (words.get("a"), words.head("a"), words.head_count())


async def test_a_fault_of_one_replay_leaves_out_no_other() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:

        def fails(_key: str) -> None:
            raise RuntimeError("injected")

        words, numbers = RecordTable(store, ROWS, fails), RecordTable(store, OTHER_ROWS)
        ended = submit_together([words.change("a", "1"), numbers.change("b", "2")])
        assert isinstance(await ended, RuntimeError)
        assert ({"a": "1"}, {"b": "2"}) == (words.durable, numbers.durable)


async def test_records_that_are_written_lazily_hold_at_once() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        await words.submit("b", "0")
        words.submit_lazily([("a", "1"), ("b", None)])
        assert {"a": "1"} == words.durable
    async with LedgerStore.open(None, engine=engine) as store:
        assert {"a": "1"} == Words(store).durable


async def test_a_row_that_cannot_be_read_stops_the_start() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        await store.put_rows([(KEYS.encode("a"), b"\x02x")])
        with pytest.raises(UnreadableRow, match="word row 'a': expected version 1, got 2"):
            Words(store)


# Parts.


def is_early(key: str) -> bool:
    return key < "c"


async def test_a_part_is_forgotten_and_loaded_again_while_the_rest_is_written() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)
        for key in "abcd":
            assert await words.submit(key, key) is None
        words.replayed.clear()
        under_way = words.submit("d", "new")
        words.unload(is_early)
        assert ({"c": "c", "d": "d"}, []) == (words.durable, words.replayed)
        assert await under_way is None
        words.load(words.read(is_early))
        assert {"a": "a", "b": "b", "c": "c", "d": "new"} == words.durable
        assert [("d", "new"), ("a", "a"), ("b", "b")] == words.replayed


async def test_a_part_that_is_being_written_is_not_forgotten() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)
        under_way = words.submit("a", "1")
        with pytest.raises(AssertionError, match="being written"):
            words.unload(is_early)
        assert await under_way is None
        words.unload(is_early)
        assert {} == words.durable


async def test_reading_a_part_skips_rows_of_others_that_cannot_be_read() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        await store.put_rows([(KEYS.encode("z"), b"\x02x"), (KEYS.encode("a"), b"\x01y")])
        table = RecordTable(store, ROWS)
        assert [("a", "y")] == list(table.read(is_early))
        with pytest.raises(UnreadableRow, match="'z'"):
            list(table.read(lambda key: not is_early(key)))
        assert {} == table.durable, "reading changes nothing"


async def test_records_without_a_decoder_of_keys_are_loaded_whole_only() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        with pytest.raises(AssertionError, match="in parts"):
            list(RecordTable(store, OTHER_ROWS).read(is_early))

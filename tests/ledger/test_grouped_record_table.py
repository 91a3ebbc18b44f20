"""Records of a group are written and hold together, as those of a table without groups do."""

import pytest

from kledger.ledger import LedgerError, LedgerStore, UnreadableRow
from kledger.ledger.record_table import (
    GroupedRecordRows,
    GroupedRecordTable,
    RecordRows,
    RecordTable,
    submit_together,
)
from kledger.ledger.row_format import TEXT16, TEXT_REST, RowFormat, RowKey
from kledger.ledger.testing import FaultyEngine
from kledger.runtime.deferred import Deferred

KEYS = RowKey("word", b"word/", language=TEXT16, key=TEXT_REST)
NAMES = RowKey("name", b"name/", key=TEXT_REST)
TEXTS = RowFormat[str]("word", {1: TEXT_REST})


def decode(key: bytes, row: bytes) -> tuple[str, str, str]:
    language, name = KEYS.decode(key)
    return language, name, TEXTS.decode(row, which=name)


def decode_name(key: bytes, row: bytes) -> tuple[str, str]:
    (name,) = NAMES.decode(key)
    return name, TEXTS.decode(row, which=name)


def decode_group(key: bytes) -> str:
    language, _ = KEYS.decode(key)
    return str(language)


ROWS = GroupedRecordRows[str, str, str](
    prefix=KEYS.prefix,
    encode_key=KEYS.encode,
    encode=TEXTS.encode,
    decode=decode,
    decode_group=decode_group,
)
NAME_ROWS = RecordRows[str, str](
    prefix=NAMES.prefix, encode_key=NAMES.encode, encode=TEXTS.encode, decode=decode_name
)


class Words(GroupedRecordTable[str, str, str]):
    """A table that notes of which groups something was replayed."""

    def __init__(self, store: LedgerStore) -> None:
        self.replayed: list[tuple[str, dict[str, str | None]]] = []
        super().__init__(store, ROWS, lambda group, some: self.replayed.append((group, dict(some))))
        self.load()

    def submit(self, group: str, **words: str | None) -> Deferred[Exception | None]:
        return submit_together([self.change(group, words)])


async def test_a_start_replays_the_records_of_each_group_together() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        before = engine.calls["commit"]
        assert await words.submit("en", a="1", b="2") is None
        assert 1 == engine.calls["commit"] - before
        assert await words.submit("de", a="3") is None
        assert await words.submit("en", a=None, c="4") is None
        expected = {"en": {"b": "2", "c": "4"}, "de": {"a": "3"}}
        assert expected == words.durable
        assert ("en", {"a": None, "c": "4"}) == words.replayed[-1]
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        assert expected == words.durable
        assert sorted(expected.items()) == sorted(words.replayed)


async def test_a_group_exists_while_it_has_a_record() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)
        writes = [words.submit("en", a="1", b="2"), words.submit("en", a=None)]
        assert ({}, {"en"}) == (words.durable, set(words.groups()))
        assert (True, False) == (words.has_group("en"), words.has_group("de"))
        writes.append(words.submit("en", b=None))
        for each in writes:
            assert await each is None
        assert ({}, set()) == (words.durable, set(words.groups()))
        assert not words.has_group("en")
        assert await words.submit("de", a=None) is None
        assert {} == words.durable


async def test_heads_of_a_group_are_its_newest_submitted_records() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        assert await words.submit("en", a="1", b="2") is None
        hold = engine.hold_next("commit")
        writes = [words.submit("en", a="3", c="4"), words.submit("en", b=None, c="5")]
        assert {"a": "1", "b": "2"} == words.durable["en"]
        assert {"a": "3", "c": "5"} == words.heads("en")
        heads = [words.head("en", each) for each in "abcd"]
        assert ["3", None, "5", None] == heads
        assert {"a": "3", "b": None, "c": "5"} == dict(words.under_way("en"))
        assert (True, False) == (words.is_writing("en"), words.is_writing("de"))
        hold.release()
        for each in writes:
            assert await each is None
        assert {"a": "3", "c": "5"} == words.durable["en"] == words.heads("en")
        assert heads == [words.head("en", each) for each in "abcd"]
        assert ({}, False) == (dict(words.under_way("en")), words.is_writing("en"))


async def test_a_head_stays_until_the_newest_write_of_its_key_has_ended() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        holds = [engine.hold_next("commit")]
        first = words.submit("en", a="1", b="1")
        await holds[0].reached()
        holds.append(engine.hold_next("commit"))
        second = words.submit("en", a="2")
        holds[0].release()
        assert await first is None
        await holds[1].reached()
        assert {"a": "1", "b": "1"} == words.durable["en"]
        assert {"a": "2"} == dict(words.under_way("en"))
        assert "2" == words.head("en", "a")
        holds[1].release()
        assert await second is None
        assert {"a": "2", "b": "1"} == words.durable["en"]


async def test_a_failed_write_of_a_group_is_not_replayed() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        assert await words.submit("en", a="1") is None
        engine.fail_next("commit")
        writes = [words.submit("en", a="2", b="2"), words.submit("de", a="2")]
        for each in writes:
            assert isinstance(await each, LedgerError)
        assert ({"en": {"a": "1"}}, {"en"}) == (words.durable, set(words.groups()))
        assert ("1", None) == (words.head("en", "a"), words.head("en", "b"))


@pytest.mark.parametrize("fails", [False, True])
async def test_records_of_groups_and_others_hold_together_or_not_at_all(fails: bool) -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words, names = Words(store), RecordTable(store, NAME_ROWS)
        assert await words.submit("en", a="1") is None
        assert await names.submit("en", "English") is None
        before = engine.calls["commit"]
        if fails:
            engine.fail_next("commit")
        ended = submit_together([words.change("en", {"a": None}), names.change("en", None)])
        assert (None, None) == (words.head("en", "a"), names.head("en"))
        assert fails == isinstance(await ended, LedgerError)
        assert 1 == engine.calls["commit"] - before
        assert ("1" if fails else None) == words.head("en", "a")
        assert ("English" if fails else None) == names.head("en")
        assert fails == bool(words.durable)


async def test_a_row_that_cannot_be_read_stops_the_start() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        await store.put_rows([(KEYS.encode("en", "a"), b"\x02x")])
        with pytest.raises(UnreadableRow, match="word row 'a': expected version 1, got 2"):
            Words(store)


async def test_some_groups_are_forgotten_and_loaded_again_while_others_are_written() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)
        assert await words.submit("en", a="1", b="2") is None
        assert await words.submit("de", a="3") is None
        words.replayed.clear()
        under_way = words.submit("de", a="4")
        with pytest.raises(AssertionError, match="being written"):
            words.unload(lambda group: group == "de")
        words.unload(lambda group: group == "en")
        assert ({"de": {"a": "3"}}, []) == (words.durable, words.replayed)
        assert await under_way is None
        words.load(words.read(lambda group: group == "en"))
        assert {"de": {"a": "4"}, "en": {"a": "1", "b": "2"}} == words.durable
        assert [("de", {"a": "4"}), ("en", {"a": "1", "b": "2"})] == words.replayed

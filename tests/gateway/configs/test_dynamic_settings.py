"""How settings of any kind are altered: checked, stored, enforced; a failure changes nothing."""

import asyncio
from collections.abc import Mapping

import pytest

from kledger.gateway.configs.dynamic_settings import DynamicSettings
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.topics import InvalidConfig
from kledger.topics.errors import TopicStorageFailed


class Words(DynamicSettings):
    """Settings that are words without blanks, two of them at most."""

    def __init__(self, store: LedgerStore) -> None:
        super().__init__(store, b"words/")
        self.enforced: list[tuple[str, dict[str, str]]] = []
        self._load()

    def _check_name(self, name: str) -> None:
        if not name:
            raise InvalidConfig("no name")

    def _validated(self, setting: str, text: str) -> str:
        if " " in text.strip():
            raise InvalidConfig(setting)
        return text.strip()

    def _validate_all(self, name: str, settings: Mapping[str, str]) -> None:
        if len(settings) > 2:
            raise InvalidConfig(name)

    def _apply(self, name: str) -> None:
        self.enforced.append((name, dict(self.of(name))))


async def test_changes_are_checked_stored_and_enforced() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        for replace, changes, after in (
            (False, {"a": " 1 "}, {"a": "1"}),
            (False, {"b": "2", "nope": None}, {"a": "1", "b": "2"}),
            (True, {"c": "3"}, {"c": "3"}),
            (False, {"c": None, "d": "4"}, {"d": "4"}),
        ):
            await words.alter("x", changes, replace=replace, validate_only=False)
            assert (after, ("x", after)) == (words.of("x"), words.enforced[-1])
        assert {"x": {"d": "4"}} == words.all
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        assert ({"x": {"d": "4"}}, [("x", {"d": "4"})]) == (words.all, words.enforced)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("", {"a": "1"}), ("x", {"a": "1 2"}), ("x", {"a": "1", "b": "2", "c": "3"})],
)
async def test_what_is_refused_changes_nothing(name: str, changes: dict[str, str]) -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        words = Words(store)
        for validate_only in (True, False):
            with pytest.raises(InvalidConfig):
                await words.alter(name, changes, replace=False, validate_only=validate_only)
        assert ({}, []) == (words.all, words.enforced)
        with pytest.raises(InvalidConfig):
            words.of("")


async def test_what_is_only_checked_or_cannot_be_stored_does_not_hold() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        await words.alter("x", {"a": "1"}, replace=False, validate_only=True)
        engine.fail_next("commit")
        with pytest.raises(TopicStorageFailed):
            await words.alter("x", {"a": "1"}, replace=False, validate_only=False)
        assert ({}, []) == (words.all, words.enforced)


async def test_two_changes_at_once_lose_nothing_of_each_other() -> None:
    """While storage holds the first, the second must not begin from what was before."""
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        words = Words(store)
        hold = engine.hold_next("commit")
        both = asyncio.gather(
            *(
                words.alter("x", {name: "1"}, replace=False, validate_only=False)
                for name in ("a", "b")
            )
        )
        await asyncio.sleep(0)
        hold.release()
        await both
        assert {"a": "1", "b": "1"} == words.of("x")

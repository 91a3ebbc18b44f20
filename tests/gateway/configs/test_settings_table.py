"""Settings by name: durable before they hold, forgotten when none is left, and not without end."""

import pytest

from kledger.gateway.api_errors import ApiError
from kledger.gateway.configs import settings_table
from kledger.gateway.configs.settings_table import SettingsTable, merged_settings
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.topics import InvalidConfig
from kledger.topics.errors import TopicStorageFailed

PREFIX = b"test/"


async def test_settings_survive_a_restart_and_can_be_forgotten() -> None:
    engine = FaultyEngine(None)
    expected: dict[str, dict[str, str]] = {}
    steps: list[dict[str, dict[str, str]]] = [
        {"ü": {"a": "1"}, "": {"b": "2"}},
        {"ü": {}},
        {"": {"c": "3"}},
    ]
    for changes in steps:
        async with LedgerStore.open(None, engine=engine) as store:
            table = SettingsTable[str](store, PREFIX)
            table.load()
            assert expected == table.all
            for name, settings in changes.items():
                await table.put(name, settings)
                assert settings == table.of(name)
            expected = {k: dict(v) for k, v in table.all.items()}
    assert {"": {"c": "3"}} == expected


async def test_tables_are_distinguished_by_their_prefix() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        await SettingsTable[str](store, b"one/").put("a", {"x": "1"})
        two = SettingsTable[str](store, b"two/")
        two.load()
        assert {} == two.all


async def test_a_failed_write_changes_nothing() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        table = SettingsTable[str](store, PREFIX)
        await table.put("a", {"x": "1"})
        for settings in ({"x": "2"}, {}):
            engine.fail_next("commit")
            with pytest.raises(TopicStorageFailed):
                await table.put("a", settings)
            assert {"a": {"x": "1"}} == table.all


async def test_limits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_table, "NAMES_MAX", 1)
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        table = SettingsTable[str](store, PREFIX)
        await table.put("a", {"x": "1"})
        for name, settings in (("b", {"x": "1"}), ("a", {"x": "1" * settings_table.ROW_BYTES_MAX})):
            with pytest.raises(ApiError, match="expected") as caught:
                await table.put(name, settings)
            assert ErrorCode.POLICY_VIOLATION == caught.value.code
        assert {"a": {"x": "1"}} == table.all
        await table.put("a", {"x": "2"})
        await table.put("a", {})
        await table.put("b", {"x": "1"})
        assert {"b": {"x": "1"}} == table.all


@pytest.mark.parametrize(
    ("replace", "expected"), [(False, {"a": "[1]", "c": "3"}), (True, {"a": "[1]"})]
)
def test_changes_are_checked_and_taken_back(*, replace: bool, expected: dict[str, str]) -> None:
    before = {"b": "2", "c": "3"}
    changes = {"a": "1", "b": None, "nope": None}
    after = merged_settings(before, changes, lambda _name, text: f"[{text}]", replace=replace)
    assert expected == after
    assert {"b": "2", "c": "3"} == before


def test_what_is_refused_changes_nothing() -> None:
    def refuse(name: str, _text: str) -> str:
        raise InvalidConfig(name)

    with pytest.raises(InvalidConfig, match="a"):
        merged_settings({}, {"a": "1"}, refuse, replace=False)

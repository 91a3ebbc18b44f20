"""Credentials are rows: they hold when they are durable, after a restart, and until they go."""

from collections.abc import AsyncIterator

import pytest

import kledger.security.users as users_module
from kledger.ledger import LedgerError, LedgerStore, UnreadableRow
from kledger.ledger.testing import FaultyEngine
from kledger.runtime.entropy import SeededEntropy
from kledger.security.credentials import PLAIN, ScramCredential, ScramMechanism, make_credential
from kledger.security.users import TooManyUsers, Users

SHA_256 = ScramMechanism.SHA_256.sasl_name
ONE = make_credential(ScramMechanism.SHA_256, "one", b"salt", 4096)
OTHER = make_credential(ScramMechanism.SHA_256, "other", b"salt", 4096)


@pytest.fixture
async def engine() -> FaultyEngine:
    return FaultyEngine(None)


@pytest.fixture
async def store(engine: FaultyEngine) -> AsyncIterator[LedgerStore]:
    async with LedgerStore.open(None, engine=engine) as opened:
        yield opened


async def test_credentials_are_found_after_a_restart(store: LedgerStore) -> None:
    users = Users(store, SeededEntropy(1))
    await users.alter(
        {("alice", SHA_256): ONE, ("alice", PLAIN): OTHER, ("bob", PLAIN): ONE}.items()
    )
    for each in (users, Users(store, SeededEntropy(2))):
        assert ["alice", "bob"] == each.names
        assert {PLAIN: OTHER, SHA_256: ONE} == each.credentials_of("alice")
        assert ONE == each.find("alice", SHA_256)
        assert (ONE, True) == each.find_plain("bob")


async def test_a_deleted_credential_is_gone_from_memory_and_rows(store: LedgerStore) -> None:
    users = Users(store, SeededEntropy(1))
    await users.alter({("alice", SHA_256): ONE}.items())
    await users.alter({("alice", SHA_256): None}.items())
    for each in (users, Users(store, SeededEntropy(2))):
        assert [] == each.names
        assert each.find("alice", SHA_256) is None
    assert [] == store.scan_rows(users_module.PREFIX)


async def test_a_credential_of_scram_is_none_of_plain(store: LedgerStore) -> None:
    users = Users(store, SeededEntropy(1))
    await users.alter({("alice", SHA_256): ONE}.items())
    found, is_user = users.find_plain("alice")
    assert not is_user
    assert found != ONE


async def test_decoys_stay_the_same_over_a_restart_once_there_are_users(
    store: LedgerStore,
) -> None:
    users = Users(store, SeededEntropy(1))
    await users.alter({("alice", SHA_256): ONE}.items())

    def decoy(of: Users) -> ScramCredential:
        return of.decoy("mallory", ScramMechanism.SHA_256)

    assert decoy(users) == decoy(Users(store, SeededEntropy(2)))


async def test_a_failed_write_changes_nothing(store: LedgerStore, engine: FaultyEngine) -> None:
    users = Users(store, SeededEntropy(1))
    await users.alter({("alice", SHA_256): ONE}.items())
    engine.fail_next("commit")
    with pytest.raises(LedgerError):
        await users.alter({("alice", SHA_256): OTHER}.items())
    assert ONE == users.find("alice", SHA_256)


async def test_the_number_of_credentials_is_limited(
    store: LedgerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "CREDENTIALS_MAX", 2)
    users = Users(store, SeededEntropy(1))
    await users.alter({("a", PLAIN): ONE, ("b", PLAIN): ONE}.items())
    await users.alter({("a", PLAIN): OTHER}.items())
    with pytest.raises(TooManyUsers, match="at most 2"):
        await users.alter({("c", PLAIN): ONE}.items())
    assert ["a", "b"] == users.names


async def test_a_row_is_written_and_read_as_ever(store: LedgerStore) -> None:
    """A store of an older program is opened by a newer one: these bytes never change."""
    key = users_module.PREFIX + b"\0\x05PLAINalice"
    row = bytes.fromhex("01" + "00001000" + "0000000273a1" + "000000026b01" + "000000026b02")
    credential = ScramCredential(b"\x73\xa1", b"\x6b\1", b"\x6b\2", 4096)
    users = Users(store, SeededEntropy(1))
    await users.alter({("alice", PLAIN): credential}.items())
    assert [(key, row)] == store.scan_rows(users_module.PREFIX)
    assert credential == Users(store, SeededEntropy(2)).find("alice", PLAIN)


async def test_a_row_that_cannot_be_read_ends_the_start(store: LedgerStore) -> None:
    await store.put_rows([(users_module.PREFIX + b"\0\x05PLAINalice", b"\x01\0")])
    with pytest.raises(UnreadableRow, match="alice"):
        Users(store, SeededEntropy(1))

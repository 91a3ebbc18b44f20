"""Which consumer has records of a key hash."""

import pytest

from kledger.subscriptions.dispatch.key_shared_state import KeyHashHolders


def test_key_hash_is_free_after_its_last_record() -> None:
    holders = KeyHashHolders()
    assert holders.is_free_for(5, 1)
    holders.take(5, 1, 2)
    holders.take(5, 1, 1)
    assert (True, False) == (holders.is_free_for(5, 1), holders.is_free_for(5, 2))
    assert not holders.release(5, 2)
    assert not holders.is_free_for(5, 2)
    assert holders.release(5, 1)
    assert holders.is_free_for(5, 2)
    assert 0 == len(holders)


def test_key_hash_has_one_holder() -> None:
    holders = KeyHashHolders()
    holders.take(5, 1, 1)
    with pytest.raises(AssertionError, match="consumer 1 has key hash 5, not 2"):
        holders.take(5, 2, 1)
    holders.clear()
    holders.take(5, 2, 1)

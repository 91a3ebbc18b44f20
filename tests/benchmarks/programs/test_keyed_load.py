"""The share of records that are replaced is exact, and spread over the log."""

import pytest

from benchmarks.programs.keyed_load import record_keys


@pytest.mark.parametrize("percent", [0, 10, 90])
def test_the_given_share_is_replaced(percent: int) -> None:
    keys = record_keys(10_000, percent)
    assert (10_000, 100 - percent) == (len(keys), len(set(keys)) // 100)
    assert keys == record_keys(10_000, percent), "the same for every server"
    newest = {key: number for number, key in enumerate(keys)}
    replaced = [newest[key] != number for number, key in enumerate(keys)]
    if percent:
        assert any(replaced[:1000])
        assert not all(replaced[-1000:])

"""The records that the clients exchange cover what is easily lost."""

from compat_tests.records import samples


def test_samples_are_the_same_each_time() -> None:
    assert samples(50) == samples(50)
    assert samples(50, seed=1) != samples(50, seed=2)


def test_samples_hold_nulls_empties_and_repeated_headers() -> None:
    records = samples(100)
    assert any(record.key is None for record in records)
    assert any(record.value is None for record in records)
    assert any(record.value == b"" for record in records)
    assert any(len({name for name, _ in r.headers}) < len(r.headers) for r in records)
    assert not any(record.key is None and record.value is None for record in records)


def test_timestamps_rise() -> None:
    times = [record.timestamp_ms for record in samples(20)]
    assert sorted(set(times)) == times

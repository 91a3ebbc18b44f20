"""What a record of the crash tests holds follows from its origin alone."""

from compat_tests.crash_load import record_origin, record_value


def test_origin_is_read_back_from_the_value() -> None:
    for sequence in (0, 1, 17, 99_999):
        value = record_value("plain", ("crash-a", 2), sequence)
        assert record_origin(value) == ("plain", ("crash-a", 2), sequence)


def test_value_differs_by_origin() -> None:
    values = {
        record_value(producer, (topic, partition), sequence)
        for producer in ("a", "b")
        for topic in ("t", "u")
        for partition in (0, 1)
        for sequence in range(50)
    }
    assert len(values) == 2 * 2 * 2 * 50


def test_values_have_many_sizes() -> None:
    sizes = [len(record_value("a", ("t", 0), sequence)) for sequence in range(200)]
    assert min(sizes) < 100
    assert max(sizes) > 2500

"""What a failed run says, and when a run that needs several is done."""

from pipelines.streaming import first_line, is_behind


def test_error_is_said_without_stack_traces() -> None:
    plain = ValueError("what went wrong\n\tat org.apache.spark.Frame")
    assert "what went wrong" == first_line(plain)
    nested = ValueError(
        "[PYTHON_DATA_SOURCE_ERROR] Failed to read: Traceback (most recent call last):\n"
        '  File "x.py", line 3, in read\n'
        "    raise InvalidOption(\n"
        "kledger.InvalidOption: unknown option 'x'\n SQLSTATE: 38000\n"
    )
    assert "kledger.InvalidOption: unknown option 'x'" == first_line(nested)
    called = ValueError("An error occurred while calling o96.save.\n: java.X: broken\n\tat Frame")
    assert "java.X: broken" == first_line(called)
    assert "TimeoutError" == first_line(TimeoutError())


def test_a_run_is_done_when_every_partition_is() -> None:
    ends = {"orders": {"0": 5, "1": 0}}
    assert is_behind({"orders": {"0": 5, "1": 0}}, ends)
    assert is_behind({"orders": {"0": 9}}, ends)
    assert not is_behind({"orders": {"0": 4, "1": 3}}, ends)
    assert not is_behind({}, ends)
    assert is_behind({}, {})

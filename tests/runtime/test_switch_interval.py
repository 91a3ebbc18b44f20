"""The interval is short while a block needs it, and restored afterwards."""

import sys
from collections.abc import Iterator

import pytest

from kledger.runtime.switch_interval import SHORT_S, SwitchInterval


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before_s)


def test_interval_is_short_until_the_last_block_ends() -> None:
    interval = SwitchInterval()
    with interval.shortened():
        with interval.shortened():
            assert SHORT_S == pytest.approx(sys.getswitchinterval())
        assert SHORT_S == pytest.approx(sys.getswitchinterval())
    assert 0.005 == pytest.approx(sys.getswitchinterval())


def test_interval_is_restored_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), SwitchInterval().shortened():
        raise ValueError("broken")
    assert 0.005 == pytest.approx(sys.getswitchinterval())


def test_shorter_interval_is_kept() -> None:
    sys.setswitchinterval(SHORT_S / 2)
    with SwitchInterval().shortened():
        assert SHORT_S / 2 == pytest.approx(sys.getswitchinterval())
    assert SHORT_S / 2 == pytest.approx(sys.getswitchinterval())

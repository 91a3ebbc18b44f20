"""Delays grow, are random in part, and are reset."""

from kledger.native.backoff import Backoff
from kledger.runtime.entropy import SeededEntropy


def test_pauses_double_up_to_the_limit_and_keep_half_of_themselves() -> None:
    for seed in range(50):
        backoff = Backoff(SeededEntropy(seed), first_ms=100, max_ms=1_000)
        for bound in (100, 200, 400, 800, 1_000, 1_000):
            assert bound // 2 <= backoff.next_ms() <= bound


def test_pauses_of_many_differ() -> None:
    firsts = {
        Backoff(SeededEntropy(seed), first_ms=100, max_ms=100).next_ms() for seed in range(99)
    }
    assert len(firsts) > 20


def test_success_resets_the_delay() -> None:
    backoff = Backoff(SeededEntropy(1), first_ms=100, max_ms=1_000)
    for _ in range(5):
        backoff.next_ms()
    backoff.reset()
    assert backoff.next_ms() <= 100

"""Which heartbeats are full."""

import pytest

from tests.gateway.coordinator.consumer_words import NOTHING, command

FULL = {"rebalance_timeout_ms": 1, "topic_names": (), "owned": NOTHING}


@pytest.mark.parametrize(
    ("epoch", "said", "is_full"),
    [
        (0, {}, True),
        (3, {}, False),
        (3, FULL, True),
        (3, {**FULL, "topic_names": None, "topic_regex": ""}, True),
        *((3, {name: value for name, value in FULL.items() if name != one}, False) for one in FULL),
    ],
)
def test_full_heartbeat(epoch: int, said: dict[str, object], is_full: bool) -> None:
    assert is_full == command("m", epoch, **said).is_full

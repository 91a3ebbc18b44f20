"""The loaders' plan: three clients share the work, each record once."""

from collections import Counter

import pytest

from pipelines.flights import FLIGHTS_TOPIC
from pipelines.loaders import LOADERS


def test_loaders_use_three_clients_and_three_codecs() -> None:
    assert len({loader.client for loader in LOADERS}) == 3
    assert len({loader.compression for loader in LOADERS}) == 3


@pytest.mark.slow
def test_loaders_together_send_every_table_once() -> None:
    sent = Counter(topic for loader in LOADERS for topic, _ in loader.messages())

    assert sent == {
        FLIGHTS_TOPIC: 336_776,
        "airlines": 16,
        "airports": 1_458,
        "planes": 3_322,
        "weather": 26_115,
    }

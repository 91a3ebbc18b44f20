"""Options of dispatchers."""

import pytest

from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.errors import InvalidRequest


@pytest.mark.parametrize(
    "name", ["unacked_subscription_max", "failover_delay_ms", "partition_index"]
)
def test_negative_options_are_refused(name: str) -> None:
    DispatchOptions(**{name: 0})
    with pytest.raises(InvalidRequest, match=f"{name} is -1"):
        DispatchOptions(**{name: -1})

"""Which seek targets the server takes from a client."""

import pytest

from kledger.ledger import Position
from kledger.native.broker import RecordPosition, SeekTarget
from kledger.native.errors import InvalidArgument
from kledger.native.server.service import check_target


@pytest.mark.parametrize(
    "target",
    [
        "newest",
        -1,
        1 << 63,
        True,
        None,
        1.5,
        RecordPosition(Position(-2, 0)),
        RecordPosition(Position(0, 1 << 63)),
        RecordPosition(Position(0, 0), -2),
        RecordPosition((0, 0)),  # type: ignore[arg-type]
        Position(0, 0),
    ],
)
def test_invalid_target_is_refused(target: SeekTarget) -> None:
    with pytest.raises(InvalidArgument, match="target: expected a message, a time in ms"):
        check_target(target)


@pytest.mark.parametrize("target", ["earliest", "latest", 0, RecordPosition(Position(-1, -1), 5)])
def test_valid_target_is_accepted(target: SeekTarget) -> None:
    check_target(target)

"""Heartbeats that are invalid in any group."""

import pytest

from kledger.gateway.coordinator.consumer.heartbeat_plan import heartbeat_error
from kledger.gateway.coordinator.consumer_messages import HeartbeatCommand
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.coordinator.consumer_words import NOTHING, CatalogOfTest, command, join_command


def refusal(asked: HeartbeatCommand) -> ErrorCode:
    refused = heartbeat_error(asked, assignors=("uniform", "range"), bytes_max=10)
    assert refused is None or refused.message
    return ErrorCode.NONE if refused is None else refused.error


@pytest.mark.parametrize(
    "asked",
    [
        join_command("m", "t"),
        join_command("m"),
        join_command("m", topic_names=None, topic_regex=""),
        join_command("m", "t", server_assignor="range", instance_id="i", rack_id="r"),
        command("m", 1),
        command("m", -1),
        command("m", -2, instance_id="i"),
        join_command("m", "0123456789"),
    ],
)
def test_valid_heartbeat_is_accepted(asked: HeartbeatCommand) -> None:
    assert ErrorCode.NONE == refusal(asked)


@pytest.mark.parametrize(
    "asked",
    [
        join_command("", "t"),
        join_command("m", "t", group_id=""),
        join_command("m", "t", instance_id=""),
        join_command("m", "t", rack_id=" "),
        join_command("m", "t", rebalance_timeout_ms=-1),
        join_command("m", "t", owned=None),
        join_command("m", "t", owned=CatalogOfTest(t=1).parts("t")),
        join_command("m", topic_names=None),
        command("m", -2),
        command("m", -3),
        join_command("m", "01234567890"),
        command("m", 3, topic_regex="01234567890"),
        command("m", 3, topic_names=("ß" * 6,)),
    ],
)
def test_invalid_heartbeat_is_an_invalid_request(asked: HeartbeatCommand) -> None:
    assert ErrorCode.INVALID_REQUEST == refusal(asked)


def test_unknown_assignor_is_rejected_with_the_known_ones() -> None:
    asked = command("m", 3, server_assignor="sticky", owned=NOTHING)
    refused = heartbeat_error(asked, assignors=("uniform", "range"), bytes_max=10)
    assert refused is not None
    assert ErrorCode.UNSUPPORTED_ASSIGNOR == refused.error
    assert "uniform, range" in str(refused.message)

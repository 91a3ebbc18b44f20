"""Heartbeat plan: which heartbeats of the consumer protocol are invalid in any group.

Rule: pure; checks the request alone. The texts are sent to the client.
Must not know: groups.
"""

from collections.abc import Sequence

from kledger.gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNCHANGED_TIMEOUT,
    HeartbeatCommand,
    HeartbeatResult,
)
from kledger.gateway.wire.error_codes import ErrorCode


def heartbeat_error(
    command: HeartbeatCommand, *, assignors: Sequence[str], bytes_max: int
) -> HeartbeatResult | None:
    """Return the answer that rejects a heartbeat, or None if it is valid.

    Args:
        command: with a member id; before version 1 the handler generates a missing one.
        assignors: the names that members may ask for.
        bytes_max: upper bound of the topic names and the expression together, in UTF-8.
    """
    message = _request_error(command, bytes_max)
    if message is not None:
        return HeartbeatResult(error=ErrorCode.INVALID_REQUEST, message=message)
    if command.server_assignor is not None and command.server_assignor not in assignors:
        return HeartbeatResult(
            error=ErrorCode.UNSUPPORTED_ASSIGNOR,
            message=f"ServerAssignor {command.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    return None


def _request_error(command: HeartbeatCommand, bytes_max: int) -> str | None:
    texts = {
        "GroupId": command.group_id,
        "MemberId": command.member_id,
        "InstanceId": command.instance_id,
        "RackId": command.rack_id,
    }
    for what, text in texts.items():
        if text is not None and not text.strip():
            return f"{what} can't be empty."
    if command.epoch < STATIC_LEAVE_EPOCH:
        return (
            f"MemberEpoch is invalid: expected {STATIC_LEAVE_EPOCH} or more, got {command.epoch}."
        )
    if command.epoch == STATIC_LEAVE_EPOCH and command.instance_id is None:
        return f"InstanceId can't be null with member epoch {STATIC_LEAVE_EPOCH}."
    if command.epoch == JOIN_EPOCH:
        return _join_error(command, bytes_max)
    return None if command.epoch == LEAVE_EPOCH else _size_error(command, bytes_max)


def _join_error(command: HeartbeatCommand, bytes_max: int) -> str | None:
    if command.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        return "RebalanceTimeoutMs must be provided in first request."
    if command.owned is None or command.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if command.topic_names is None and command.topic_regex is None:
        names = "SubscribedTopicNames or SubscribedTopicRegex"
        return f"Either {names} must be non-null when (re-)joining."
    return _size_error(command, bytes_max)


def _size_error(command: HeartbeatCommand, bytes_max: int) -> str | None:
    texts = (*(command.topic_names or ()), command.topic_regex or "")
    size = sum(len(text.encode()) for text in texts)
    return f"{size} bytes of names, at most {bytes_max}" if size > bytes_max else None

"""Consumer beat plan: which heartbeats of the consumer protocol make no sense in any group.

Rule: pure; looks at the request alone. The texts go to the client.
Must not know: groups.
"""

from collections.abc import Sequence

from gateway.coordinator.consumer_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    BeatCommand,
    BeatResult,
)
from gateway.wire.error_codes import ErrorCode


def refuse_beat(
    command: BeatCommand, *, assignors: Sequence[str], bytes_max: int
) -> BeatResult | None:
    """Return why a heartbeat is refused, or None.

    Args:
        command: with a member id, if the client needs none, already given.
        assignors: the names of those that members may ask for.
        bytes_max: how long names and expression together may be.
    """
    message = _mistake(command, bytes_max)
    if message is not None:
        return BeatResult(error=ErrorCode.INVALID_REQUEST, message=message)
    if command.server_assignor is not None and command.server_assignor not in assignors:
        return BeatResult(
            error=ErrorCode.UNSUPPORTED_ASSIGNOR,
            message=f"assignor {command.server_assignor}: expected one of {', '.join(assignors)}",
        )
    return None


def _mistake(command: BeatCommand, bytes_max: int) -> str | None:
    must_say = {
        "group id": command.group_id,
        "member id": command.member_id,
        "instance id": command.instance_id,
        "rack id": command.rack_id,
    }
    for what, text in must_say.items():
        if text is not None and not text.strip():
            return f"the {what} is empty"
    if command.epoch < STATIC_LEAVE_EPOCH:
        return f"member epoch {command.epoch}: expected {STATIC_LEAVE_EPOCH} or more"
    if command.epoch == STATIC_LEAVE_EPOCH and command.instance_id is None:
        return f"member epoch {STATIC_LEAVE_EPOCH} is for members with an instance id"
    if command.epoch == JOIN_EPOCH:
        return _join_mistake(command, bytes_max)
    return None if command.epoch == LEAVE_EPOCH else _size_mistake(command, bytes_max)


def _join_mistake(command: BeatCommand, bytes_max: int) -> str | None:
    if command.rebalance_timeout_ms == NO_TIMEOUT:
        return "who joins must give a rebalance timeout"
    if command.owned is None or command.owned:
        return "who joins must own no partitions, and say so"
    if command.topic_names is None and command.topic_regex is None:
        return "who joins must give names of topics, or an expression"
    return _size_mistake(command, bytes_max)


def _size_mistake(command: BeatCommand, bytes_max: int) -> str | None:
    texts = (*(command.topic_names or ()), command.topic_regex or "")
    size = sum(len(text.encode()) for text in texts)
    return f"{size} bytes of names, at most {bytes_max}" if size > bytes_max else None

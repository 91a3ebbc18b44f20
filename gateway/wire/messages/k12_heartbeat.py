"""Heartbeat, key 12: keep a group member alive."""

from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, field


class HeartbeatRequest(ApiMessage, key=12, versions="0-4", flexible="4+"):
    """A heartbeat of one member."""

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)


class HeartbeatResponse(ApiMessage, key=12, versions="0-4", flexible="4+"):
    """The error says whether the member must rejoin."""

    throttle_time_ms: Int32 = field(versions="1+", default=0)
    error_code: Int16 = 0


REQUEST = HeartbeatRequest
RESPONSE = HeartbeatResponse

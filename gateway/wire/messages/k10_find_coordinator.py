"""FindCoordinator, key 10: the coordinator of groups and transactional ids."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class FindCoordinatorRequest(ApiMessage, key=10, versions="0-6", flexible="3+"):
    """The keys to look up; one key before version 4."""

    key: str = field(versions="0-3", default="")
    key_type: Int8 = field(versions="1+", default=0)
    coordinator_keys: list[str] = field(versions="4+", default=[])


class Coordinator(Struct):
    """The coordinator of one key, from version 4 on."""

    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class FindCoordinatorResponse(ApiMessage, key=10, versions="0-6", flexible="3+"):
    """The node that coordinates each key."""

    throttle_time_ms: Int32 = field(versions="1+", default=0)
    error_code: Int16 = field(versions="0-3", default=0)
    error_message: str | None = field(versions="1-3", default="")
    node_id: Int32 = field(versions="0-3", default=0)
    host: str = field(versions="0-3", default="")
    port: Int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+", default=[])


REQUEST = FindCoordinatorRequest
RESPONSE = FindCoordinatorResponse

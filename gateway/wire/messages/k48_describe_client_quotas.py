"""DescribeClientQuotas, key 48: list quotas."""

from kledger.gateway.wire.schema import ApiMessage, Float64, Int8, Int16, Int32, Struct


class ComponentData(Struct):
    """A filter for one part of an entity: exact (0), the default (1), any (2)."""

    entity_type: str = ""
    match_type: Int8 = 0
    match: str | None = ""


class DescribeClientQuotasRequest(ApiMessage, key=48, versions="0-1", flexible="1+"):
    """A filter of the entities to describe."""

    components: list[ComponentData] = []
    strict: bool = False


class EntityData(Struct):
    """One part of an entity; the name is null for the default."""

    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(Struct):
    """One quota."""

    key: str = ""
    value: Float64 = 0.0


class EntryData(Struct):
    """Quotas of one entity."""

    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(ApiMessage, key=48, versions="0-1", flexible="1+"):
    """Quotas of the entities that match."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = []


REQUEST = DescribeClientQuotasRequest
RESPONSE = DescribeClientQuotasResponse

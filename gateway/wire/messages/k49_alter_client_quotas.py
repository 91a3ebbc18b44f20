"""AlterClientQuotas, key 49: change quotas."""

from kledger.gateway.wire.schema import ApiMessage, Float64, Int16, Int32, Struct


class EntityData(Struct):
    """One part of an entity; the name is null for the default."""

    entity_type: str = ""
    entity_name: str | None = ""


class OpData(Struct):
    """One quota to set or remove."""

    key: str = ""
    value: Float64 = 0.0
    remove: bool = False


class EntryData(Struct):
    """Changes to one entity."""

    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(ApiMessage, key=49, versions="0-1", flexible="1+"):
    """Quotas to set and remove."""

    entries: list[EntryData] = []
    validate_only: bool = False


class AlteredEntry(Struct, kafka_name="EntryData"):
    """Outcome for one entity."""

    error_code: Int16 = 0
    error_message: str | None = ""
    entity: list[EntityData] = []


class AlterClientQuotasResponse(ApiMessage, key=49, versions="0-1", flexible="1+"):
    """Outcome for each entity."""

    throttle_time_ms: Int32 = 0
    entries: list[AlteredEntry] = []


REQUEST = AlterClientQuotasRequest
RESPONSE = AlterClientQuotasResponse

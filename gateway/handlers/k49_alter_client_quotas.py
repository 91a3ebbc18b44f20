"""AlterClientQuotas, key 49, versions 0-1 (KIP-546).

Behaviour:
- Every entity gets one entry, is changed as a whole or not at all, and holds at once and after a
  restart. Of an entity that stands twice only one entry is answered, INVALID_REQUEST.
- Rates of bytes and connections are whole numbers above 0, others any number above 0. An address
  (``ip``) stands alone and has quotas of its own (KIP-612).
- With ``validate_only`` nothing changes. To remove what is not set is no mistake.
"""

from kledger.gateway.api_errors import (
    ApiError,
    check_not_repeated,
    code_and_message_of,
    first_of_each,
)
from kledger.gateway.quotas.quota_entities import altered_quotas, parse_entity
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    EntityData,
    EntryData,
)
from kledger.topics import TopicsError

KEY = 49
MIN_VERSION = 0
MAX_VERSION = 1


async def handle(
    context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change the quotas of each entity."""
    response = AlterClientQuotasResponse()
    for entry, count in first_of_each(request.entries, _name_of):
        outcome = AlteredEntry(entity=list(_parts(entry).values()), error_message=None)
        try:
            check_not_repeated(count, "Duplicate entity")
            await _alter(context, entry, validate_only=request.validate_only)
        except (ApiError, TopicsError) as error:
            outcome.error_code, outcome.error_message = code_and_message_of(error)
        response.entries.append(outcome)
    return response


def _name_of(entry: EntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset((kind, part.entity_name) for kind, part in _parts(entry).items())


def _parts(entry: EntryData) -> dict[str, EntityData]:
    """Return what an entity is named by; of two parts of one type the later one counts."""
    return {part.entity_type: part for part in entry.entity}


async def _alter(context: RequestContext, entry: EntryData, *, validate_only: bool) -> None:
    quotas = context.services.quotas
    entity = parse_entity(entry.entity)
    after = altered_quotas(entity, quotas.state.quotas.get(entity, {}), entry.ops)
    if not validate_only:
        await quotas.put(entity, after)

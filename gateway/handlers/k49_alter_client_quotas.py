"""AlterClientQuotas, key 49, versions 0-1 (KIP-546).

Behaviour:
- Every entity gets one entry and is changed atomically; changes take effect at once and survive a
  restart. A repeated entity gets one entry, INVALID_REQUEST.
- Rates of bytes and connections are whole numbers above 0, others any number above 0. An address
  (``ip``) cannot be combined with other types and has quotas of its own (KIP-612).
- With ``validate_only`` nothing changes. Removing a quota that is not set is no error.
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
    """Return the key of an entity; of two parts of one type the later one counts."""
    return {part.entity_type: part for part in entry.entity}


async def _alter(context: RequestContext, entry: EntryData, *, validate_only: bool) -> None:
    quotas = context.services.quotas
    entity = parse_entity(entry.entity)
    async with quotas.changing:
        after = altered_quotas(entity, quotas.state.quotas.get(entity, {}), entry.ops)
        if validate_only:
            return
        await quotas.put(entity, after)
    named = ",".join(f"{kind}={name}" for kind, name in entity)
    context.audit("altered quotas", entity=named, quotas=",".join(sorted(after)))

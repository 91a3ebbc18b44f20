"""Topic creation: topics that a Metadata request names and that do not exist are created.

Rule: one after the other, until the client has used up its `controller_mutation_rate`.
Must not know: which topics the client may create.
"""

from collections.abc import Iterable
from functools import partial

from kledger.gateway.request_context import RequestContext
from kledger.topics import TopicsError


async def create_topics(context: RequestContext, names: Iterable[str]) -> dict[str, TopicsError]:
    """Create topics with the defaults of the broker; return those that failed.

    Another client may create the same ones meanwhile.
    """
    failed: dict[str, TopicsError] = {}
    services = context.services
    config = services.config
    charge = partial(
        services.quotas.charge_mutations, context.peer.principal, context.client_id or ""
    )
    for name in names:
        if charge(0):
            break
        try:
            await services.registry.create(
                name,
                partitions=config.num_partitions,
                configs={},
                replication=config.default_replication_factor,
            )
            charge(config.num_partitions)
            context.audit("created topic", topic=name, partitions=config.num_partitions)
        except TopicsError as error:
            failed[name] = error
    return failed

"""The calls with one answer, on the server's side: a message in, the broker's call, a message out.

Rule: one function for each; what must be checked is checked by the broker.
Must not know: streams, versions, how an error travels.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kledger.native.broker import Broker
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.values import (
    location_to,
    mask_to,
    metrics_client_to,
    position_to,
    record_position_from,
    subscription_stats_to,
    target_from,
    topic_stats_to,
)


async def _lookup(broker: Broker, request: pb.LookupRequest) -> pb.LookupResponse:
    info = await broker.lookup(request.topic, create=request.create)
    return pb.LookupResponse(name=info.name, partition_count=info.partition_count)


async def _last_record(
    broker: Broker, request: pb.GetLastRecordRequest
) -> pb.GetLastRecordResponse:
    record = await broker.last_record(request.topic, request.partition)
    return pb.GetLastRecordResponse(record=location_to(record))


async def _record_at(broker: Broker, request: pb.GetRecordRequest) -> pb.GetRecordResponse:
    record = await broker.record_at(request.topic, request.partition, request.offset)
    return pb.GetRecordResponse(record=location_to(record))


async def _offset_of(broker: Broker, request: pb.GetOffsetRequest) -> pb.GetOffsetResponse:
    record_position = record_position_from(request.record_position)
    offset = await broker.offset_of(request.topic, request.partition, record_position)
    return pb.GetOffsetResponse(offset=offset)


async def _create_partitions(
    broker: Broker, request: pb.CreatePartitionsRequest
) -> pb.CreatePartitionsResponse:
    await broker.create_partitions(request.name, request.count)
    return pb.CreatePartitionsResponse()


async def _create_topic(broker: Broker, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
    await broker.create_topic(request.name, request.partitions, dict(request.config))
    return pb.CreateTopicResponse()


async def _delete_topic(broker: Broker, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
    await broker.delete_topic(request.name)
    return pb.DeleteTopicResponse()


async def _topics(broker: Broker, _: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
    return pb.ListTopicsResponse(names=await broker.topics())


async def _topic_stats(
    broker: Broker, request: pb.GetTopicStatsRequest
) -> pb.GetTopicStatsResponse:
    return topic_stats_to(await broker.topic_stats(request.name))


async def _terminate(
    broker: Broker, request: pb.TerminateTopicRequest
) -> pb.TerminateTopicResponse:
    records = await broker.terminate(request.name)
    return pb.TerminateTopicResponse(last_records=map(location_to, records))


async def _subscriptions(
    broker: Broker, request: pb.ListSubscriptionsRequest
) -> pb.ListSubscriptionsResponse:
    return pb.ListSubscriptionsResponse(names=await broker.subscriptions(request.topic))


async def _create_subscription(
    broker: Broker, request: pb.CreateSubscriptionRequest
) -> pb.CreateSubscriptionResponse:
    await broker.create_subscription(request.topic, request.name, target_from(request.start))
    return pb.CreateSubscriptionResponse()


async def _delete_subscription(
    broker: Broker, request: pb.DeleteSubscriptionRequest
) -> pb.DeleteSubscriptionResponse:
    await broker.delete_subscription(request.topic, request.name, force=request.force)
    return pb.DeleteSubscriptionResponse()


async def _subscription_stats(
    broker: Broker, request: pb.GetSubscriptionStatsRequest
) -> pb.GetSubscriptionStatsResponse:
    return subscription_stats_to(await broker.subscription_stats(request.topic, request.name))


async def _reset_subscription(
    broker: Broker, request: pb.ResetSubscriptionRequest
) -> pb.ResetSubscriptionResponse:
    await broker.reset_subscription(
        request.topic,
        request.name,
        target_from(request.target),
        partition=request.partition if request.HasField("partition") else None,
        inclusive=request.inclusive,
    )
    return pb.ResetSubscriptionResponse()


async def _skip_messages(
    broker: Broker, request: pb.SkipMessagesRequest
) -> pb.SkipMessagesResponse:
    await broker.skip_messages(request.topic, request.name, request.count)
    return pb.SkipMessagesResponse()


async def _clear_backlog(
    broker: Broker, request: pb.ClearBacklogRequest
) -> pb.ClearBacklogResponse:
    await broker.clear_backlog(request.topic, request.name)
    return pb.ClearBacklogResponse()


async def _peek(broker: Broker, request: pb.PeekRequest) -> pb.PeekResponse:
    found = await broker.peek(request.topic, request.name, request.count)
    return pb.PeekResponse(
        entries=[
            pb.PeekedEntry(
                partition=partition,
                position=position_to(position),
                data=bytes(data),
                records=mask_to(records),
            )
            for partition, position, data, records in found
        ]
    )


async def _metrics_clients(
    broker: Broker, _: pb.ListMetricsClientsRequest
) -> pb.ListMetricsClientsResponse:
    found = await broker.metrics_clients()
    return pb.ListMetricsClientsResponse(clients=map(metrics_client_to, found))


async def _client_metrics(
    broker: Broker, request: pb.GetClientMetricsRequest
) -> pb.GetClientMetricsResponse:
    found = await broker.client_metrics(request.instance_id)
    if found is None:
        return pb.GetClientMetricsResponse()
    return pb.GetClientMetricsResponse(client=metrics_client_to(found.client), data=found.data)


UNARY: Mapping[str, Callable[[Broker, Any], Awaitable[Any]]] = {
    "Lookup": _lookup,
    "GetLastRecord": _last_record,
    "GetRecord": _record_at,
    "GetOffset": _offset_of,
    "CreateTopic": _create_topic,
    "CreatePartitions": _create_partitions,
    "DeleteTopic": _delete_topic,
    "ListTopics": _topics,
    "GetTopicStats": _topic_stats,
    "TerminateTopic": _terminate,
    "ListSubscriptions": _subscriptions,
    "CreateSubscription": _create_subscription,
    "DeleteSubscription": _delete_subscription,
    "GetSubscriptionStats": _subscription_stats,
    "ResetSubscription": _reset_subscription,
    "SkipMessages": _skip_messages,
    "ClearBacklog": _clear_backlog,
    "Peek": _peek,
    "ListMetricsClients": _metrics_clients,
    "GetClientMetrics": _client_metrics,
}
"""By the names of the .proto file; Hello is the listener's own."""

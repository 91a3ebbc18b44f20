"""UnaryCalls: the calls with one answer, as one table of methods and calls of the .proto file.

Rule: a new method of the broker is one row here. Its arguments are the fields of the request
message, by name; the row says how the result is written and read. The client sends by this table
and the server dispatches by it; the broker checks the values.
Must not know: streams, versions, connections, how an error is sent.
"""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from kledger.named_topics.model import (
    ChannelAllocation,
    ChannelEnds,
    ChannelPollResult,
    NamedTopicInfo,
    SeekOutcome,
    SubscriberGroupInfo,
)
from kledger.native.broker import Broker
from kledger.native.rpc import values
from kledger.native.rpc.named_topic_values import (
    NAMED_TOPIC_CODECS,
    codec_of,
    commit_outcomes_from,
    commit_outcomes_to,
    commit_request_from,
    commit_request_to,
)
from kledger.native.rpc.protocol import CALLS

P = ParamSpec("P")
R = TypeVar("R")
Message = Any
"""A message of protobuf."""

FIELD_CODECS: Mapping[str, tuple[Callable[[Any], Message], Callable[[Message], Any]]] = {
    "Position": (values.position_to, values.position_from),
    "Target": (values.target_to, values.target_from),
    "RecordPosition": (values.record_position_to, values.record_position_from),
    "CommitRequest": (commit_request_to, commit_request_from),
    **{name: (codec.write, codec.read) for name, codec in NAMED_TOPIC_CODECS.items()},
}
"""How to write and read an argument that is a message itself, by the name of that message."""


class ResultCodec(NamedTuple, Generic[R]):
    """How to write and read the result of a call.

    Attributes:
        write: takes the class of the response and the result; returns the response.
        read: takes the response; returns the result.
    """

    write: Callable[[Callable[..., Message], R], Message]
    read: Callable[[Message], R]


def whole(write: Callable[[R], Message], read: Callable[[Message], R]) -> ResultCodec[R]:
    """Let the response be the result."""
    return ResultCodec(lambda _, result: write(result), read)


def one(field: str, write: Callable[[R], Any], read: Callable[[Any], R]) -> ResultCodec[R]:
    """Let one field of the response be the result."""
    return ResultCodec(
        lambda response, result: response(**{field: write(result)}),
        lambda message: read(getattr(message, field)),
    )


def many(field: str, write: Callable[[R], Any], read: Callable[[Any], R]) -> ResultCodec[list[R]]:
    """Let one repeated field of the response be the result."""
    return ResultCodec(
        lambda response, result: response(**{field: map(write, result)}),
        lambda message: [read(each) for each in getattr(message, field)],
    )


def named_topic(kind: type[R]) -> ResultCodec[R]:
    """Let the response be a value of named topics."""
    return whole(codec_of(kind).write, codec_of(kind).read)


def named_topic_values(field: str, kind: type[R]) -> ResultCodec[list[R]]:
    """Let one repeated field of the response be values of named topics."""
    return many(field, codec_of(kind).write, codec_of(kind).read)


NOTHING: ResultCodec[None] = ResultCodec(lambda response, _: response(), lambda _: None)
LOCATION = one("record", values.location_to, values.location_from)
NAMES = many("names", str, str)


class UnaryCall(Generic[P, R]):
    """One row.

    Attributes:
        method: of the broker; the client's method has its signature and its docstring.
        name: of the call in the .proto file.
        sets_position: the call ends the consumer links of the subscription that it names.
        waits: the call may wait for something to happen; a server that stops cancels it.
    """

    def __init__(
        self,
        method: Callable[Concatenate[Broker, P], Coroutine[Any, Any, R]],
        name: str,
        result: ResultCodec[R],
        *,
        sets_position: bool = False,
        waits: bool = False,
    ) -> None:
        self.method = method
        self.name = name
        self.sets_position = sets_position
        self.waits = waits
        self._result = result
        self._request = CALLS[name].request
        self._response = CALLS[name].response
        _, *parameters = inspect.signature(method).parameters.values()
        self._signature = inspect.Signature(parameters)

    def arguments(self, *given: P.args, **named: P.kwargs) -> dict[str, Any]:
        """Return the arguments of a call by name. Raises TypeError as the method would."""
        return self._signature.bind(*given, **named).arguments

    def request(self, arguments: Mapping[str, Any]) -> Message:
        """Write the request. Raises InvalidArgument."""
        fields = self._request.DESCRIPTOR.fields_by_name
        return self._request(
            **{name: _written(fields[name], value) for name, value in arguments.items()}
        )

    def arguments_of(self, request: Message) -> dict[str, Any]:
        """Read the arguments of a request. Raises InvalidArgument."""
        fields = request.DESCRIPTOR.fields_by_name
        return {name: _read(fields[name], request) for name in self._signature.parameters}

    def response(self, result: R) -> Message:
        """Write the response."""
        return self._result.write(self._response, result)

    def result(self, response: Message) -> R:
        """Read the result."""
        return self._result.read(response)

    async def serve(self, broker: Broker, request: Message) -> Message:
        """Call the broker with the arguments of a request. Raises what the broker raises."""
        bound = inspect.BoundArguments(
            self._signature,
            self.arguments_of(request),
        )
        method = getattr(broker, self.method.__name__)
        return self.response(await method(*bound.args, **bound.kwargs))


def _written(field: Any, value: Any) -> Any:
    if value is None:
        return None
    if field.message_type is not None and field.message_type.name in FIELD_CODECS:
        write, _ = FIELD_CODECS[field.message_type.name]
        return write(value)
    return value


def _read(field: Any, request: Message) -> Any:
    value = getattr(request, field.name)
    if field.message_type is None:
        if field.is_repeated:
            return list(value)
        return None if field.has_presence and not request.HasField(field.name) else value
    if field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.message_type.name == "Position" and not request.HasField(field.name):
        return None
    _, read = FIELD_CODECS[field.message_type.name]
    return read(value)


class UnaryCalls:
    """The table; a row is named as the method is."""

    lookup = UnaryCall(Broker.lookup, "Lookup", whole(values.topic_info_to, values.topic_info_from))
    last_record = UnaryCall(Broker.last_record, "GetLastRecord", LOCATION)
    committed_ends = UnaryCall(
        Broker.committed_ends,
        "GetCommittedEnds",
        many("ends", values.position_to, values.position_from),
    )
    record_at = UnaryCall(Broker.record_at, "GetRecord", LOCATION)
    offset_of = UnaryCall(Broker.offset_of, "GetOffset", one("offset", int, int))

    create_topic = UnaryCall(Broker.create_topic, "CreateTopic", NOTHING)
    delete_topic = UnaryCall(Broker.delete_topic, "DeleteTopic", NOTHING)
    topics = UnaryCall(Broker.topics, "ListTopics", NAMES)
    topic_stats = UnaryCall(
        Broker.topic_stats, "GetTopicStats", whole(values.topic_stats_to, values.topic_stats_from)
    )
    create_partitions = UnaryCall(Broker.create_partitions, "CreatePartitions", NOTHING)
    terminate = UnaryCall(
        Broker.terminate,
        "TerminateTopic",
        many("last_records", values.location_to, values.location_from),
    )

    start_compaction = UnaryCall(Broker.start_compaction, "StartCompaction", NOTHING)
    compaction_status = UnaryCall(
        Broker.compaction_status,
        "GetCompactionStatus",
        whole(values.compaction_status_to, values.compaction_status_from),
    )

    start_offload = UnaryCall(Broker.start_offload, "StartOffload", NOTHING)
    offload_status = UnaryCall(
        Broker.offload_status,
        "GetOffloadStatus",
        whole(values.offload_status_to, values.offload_status_from),
    )

    namespaces = UnaryCall(Broker.namespaces, "ListNamespaces", NAMES)
    create_namespace = UnaryCall(Broker.create_namespace, "CreateNamespace", NOTHING)
    delete_namespace = UnaryCall(Broker.delete_namespace, "DeleteNamespace", NOTHING)
    policies = UnaryCall(Broker.policies, "GetPolicies", one("policies", dict, dict))
    set_policies = UnaryCall(Broker.set_policies, "SetPolicies", NOTHING)

    subscriptions = UnaryCall(Broker.subscriptions, "ListSubscriptions", NAMES)
    create_subscription = UnaryCall(Broker.create_subscription, "CreateSubscription", NOTHING)
    delete_subscription = UnaryCall(Broker.delete_subscription, "DeleteSubscription", NOTHING)
    subscription_stats = UnaryCall(
        Broker.subscription_stats,
        "GetSubscriptionStats",
        whole(values.subscription_stats_to, values.subscription_stats_from),
    )
    reset_subscription = UnaryCall(
        Broker.reset_subscription, "ResetSubscription", NOTHING, sets_position=True
    )
    skip_messages = UnaryCall(Broker.skip_messages, "SkipMessages", NOTHING, sets_position=True)
    clear_backlog = UnaryCall(Broker.clear_backlog, "ClearBacklog", NOTHING, sets_position=True)
    peek = UnaryCall(
        Broker.peek, "Peek", many("entries", values.peeked_entry_to, values.peeked_entry_from)
    )

    open_named_topic = UnaryCall(
        Broker.open_named_topic, "OpenNamedTopic", named_topic(NamedTopicInfo)
    )
    destroy_named_topic = UnaryCall(Broker.destroy_named_topic, "DestroyNamedTopic", NOTHING)
    named_topics = UnaryCall(Broker.named_topics, "ListNamedTopics", NAMES)
    ensure_subscriber_group = UnaryCall(
        Broker.ensure_subscriber_group, "EnsureSubscriberGroup", NOTHING
    )
    destroy_subscriber_group = UnaryCall(
        Broker.destroy_subscriber_group, "DestroySubscriberGroup", NOTHING
    )
    subscriber_groups = UnaryCall(
        Broker.subscriber_groups,
        "ListSubscriberGroups",
        named_topic_values("groups", SubscriberGroupInfo),
    )
    wait_for_room = UnaryCall(
        Broker.wait_for_room, "WaitForRoom", one("has_room", bool, bool), waits=True
    )
    join_subscriber = UnaryCall(
        Broker.join_subscriber, "JoinSubscriber", named_topic(ChannelAllocation)
    )
    leave_subscriber = UnaryCall(Broker.leave_subscriber, "LeaveSubscriber", NOTHING)
    poll_channels = UnaryCall(
        Broker.poll_channels, "PollChannels", named_topic(ChannelPollResult), waits=True
    )
    commit_channels = UnaryCall(
        Broker.commit_channels,
        "CommitChannels",
        ResultCodec(
            lambda response, result: response(outcomes=commit_outcomes_to(result)),
            lambda message: commit_outcomes_from(message.outcomes),
        ),
    )
    seek_channels = UnaryCall(
        Broker.seek_channels, "SeekChannels", named_topic_values("outcomes", SeekOutcome)
    )
    channel_ends = UnaryCall(
        Broker.channel_ends, "GetChannelEnds", named_topic_values("channels", ChannelEnds)
    )

    metrics_clients = UnaryCall(
        Broker.metrics_clients,
        "ListMetricsClients",
        many("clients", values.metrics_client_to, values.metrics_client_from),
    )
    client_metrics = UnaryCall(
        Broker.client_metrics,
        "GetClientMetrics",
        whole(values.client_metrics_to, values.client_metrics_from),
    )


UNARY: Mapping[str, UnaryCall[..., Any]] = {
    each.name: each for each in vars(UnaryCalls).values() if isinstance(each, UnaryCall)
}
"""The rows by the names of the .proto file; only Hello is missing, which the listener answers."""

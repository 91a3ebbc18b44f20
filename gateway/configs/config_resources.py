"""Config resources: the topics, brokers, groups and client metrics that have settings.

Rule: altering a resource is atomic. A resource that `ConfigResources.find` does not know has no
configuration here.
Must not know: the messages of the APIs that use it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from kledger.gateway.api_errors import ApiError, find_topic
from kledger.gateway.configs.broker_entries import all_nodes_entries, node_entries
from kledger.gateway.configs.broker_keys import BROKER_KEYS
from kledger.gateway.configs.broker_settings import ALL_NODES, BrokerSettings
from kledger.gateway.configs.client_metrics import CLIENT_METRICS_KEYS, ClientMetricsSubscriptions
from kledger.gateway.configs.config_entries import (
    client_metrics_entries,
    group_entries,
    topic_entries,
)
from kledger.gateway.configs.dynamic_settings import DynamicSettings
from kledger.gateway.configs.group_keys import GROUP_KEYS
from kledger.gateway.configs.group_settings import GroupSettings
from kledger.gateway.configs.resource_requests import ConfigResourceType, RequestedResource
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k32_describe_configs import DescribeConfigsResourceResult
from kledger.topics import CONFIG_KEYS, ConfigType, InvalidConfig, Topic, TopicRegistry
from kledger.topics.config.config_keys import ConfigKey

CONFIGURABLE: Final = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)
"""The types that have settings."""
Entries = Iterable[DescribeConfigsResourceResult]


class ConfigResource(Protocol):
    """One thing that has settings."""

    keys: Collection[str]
    """The settings that it can have, by name."""
    list_settings: frozenset[str]
    """Those that elements can be added to and taken from."""

    def entries(self) -> Entries:
        """Return all settings, as they are shown."""
        ...

    def value(self, name: str) -> str:
        """Return the text in force of one of them."""
        ...

    async def alter(
        self, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings, or only check the changes; None takes a setting back.

        Raises:
            ApiError: nothing was changed.
            TopicsError: nothing was changed.
        """
        ...


S = TypeVar("S", bound=DynamicSettings)


class ConfigResources:
    """All resources of one server that have settings."""

    def __init__(
        self,
        registry: TopicRegistry,
        broker_settings: BrokerSettings,
        group_settings: GroupSettings,
        client_metrics: ClientMetricsSubscriptions,
    ) -> None:
        self._registry = registry
        self._broker_settings = broker_settings
        self._group_settings = group_settings
        self._client_metrics = client_metrics

    def find(self, resource: RequestedResource) -> ConfigResource:
        """Return the resource that a request names by type and name.

        Raises:
            ApiError: it has no configuration here.
            TopicsError: there is no such topic.
        """
        name = resource.resource_name
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                topic = find_topic(self._registry, name)
                return TopicConfigResource(self._registry, self._broker_settings, topic)
            case ConfigResourceType.BROKER:
                return BrokerConfigResource(self._broker_settings, name)
            case ConfigResourceType.CLIENT_METRICS:
                return ClientMetricsConfigResource(self._client_metrics, name)
            case ConfigResourceType.GROUP:
                return GroupConfigResource(self._group_settings, name)
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown resource type {resource.resource_type}, expected "
            f"{', '.join(f'{one.value} ({one.name})' for one in CONFIGURABLE)}",
        )

    def find_alterable(self, resource: RequestedResource) -> ConfigResource:
        """Return the resource of a request that alters settings.

        Raises:
            ApiError: it has no configuration here that can be altered.
            TopicsError: there is no such topic.
        """
        if resource.resource_type == ConfigResourceType.TOPIC and resource.resource_name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        return self.find(resource)

    def names(self) -> dict[ConfigResourceType, list[str]]:
        """Return the names of all resources that have a configuration, by type.

        Groups and subscriptions are included only if they have settings; all others have the
        defaults, whether they exist or not.
        """
        return {
            ConfigResourceType.TOPIC: [topic.name for topic in self._registry.all()],
            ConfigResourceType.BROKER: [self._broker_settings.node],
            ConfigResourceType.CLIENT_METRICS: list(self._client_metrics.subscriptions()),
            ConfigResourceType.GROUP: list(self._group_settings.all),
        }


def current_list(config_resource: ConfigResource, name: str, operation: str) -> list[str]:
    """Return the elements of a setting that is a list.

    Args:
        config_resource: has the setting.
        name: of the setting.
        operation: what is to be done with the list, for the refusal.

    Raises:
        InvalidConfig: it is none.
    """
    if name not in config_resource.list_settings:
        raise InvalidConfig(f"Can't {operation} to key {name} because its type is not LIST.")
    return [element for element in config_resource.value(name).split(",") if element]


def _described_value(entries: Entries, name: str) -> str:
    return next(entry.value or "" for entry in entries if entry.name == name)


def _lists(keys: Mapping[str, ConfigKey]) -> frozenset[str]:
    return frozenset(name for name, key in keys.items() if key.type is ConfigType.LIST)


class TopicConfigResource:
    """A topic."""

    keys: Collection[str] = CONFIG_KEYS
    list_settings = _lists(CONFIG_KEYS)

    def __init__(
        self, registry: TopicRegistry, broker_settings: BrokerSettings, topic: Topic
    ) -> None:
        self._registry = registry
        self._broker_settings = broker_settings
        self._topic = topic

    def entries(self) -> Entries:
        """Return all settings, as they are shown."""
        topic = self._topic
        return topic_entries(
            topic.configs, self._registry.defaults, self._broker_settings, topic.namespace_configs
        )

    def value(self, name: str) -> str:
        """Return the text in force of a setting."""
        return _described_value(self.entries(), name)

    async def alter(
        self, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings, or only check the changes; None takes a setting back."""
        if validate_only:
            self._registry.check_changes(self._topic, changes, replace=replace)
        else:
            await self._registry.alter_configs(self._topic.name, changes, replace=replace)


class _StoredConfigResource(Generic[S]):
    """A resource whose settings are stored apart from topics."""

    def __init__(self, settings: S, name: str) -> None:
        settings.of(name)
        self._settings = settings
        self._name = name

    async def alter(
        self, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings, or only check the changes; None takes a setting back."""
        await self._settings.alter(
            self._name, changes, replace=replace, validate_only=validate_only
        )


class BrokerConfigResource(_StoredConfigResource[BrokerSettings]):
    """This node, or all nodes."""

    list_settings = frozenset(
        name for name, key in BROKER_KEYS.items() if key.type is ConfigType.LIST
    )

    def __init__(self, settings: BrokerSettings, name: str) -> None:
        super().__init__(settings, name)
        self.keys: Collection[str] = {*BROKER_KEYS, *settings.of(name)}

    def entries(self) -> Entries:
        """Return all settings, as they are shown; of all nodes, what was altered for them."""
        if self._name == ALL_NODES:
            return all_nodes_entries(self._settings)
        return node_entries(self._settings)

    def value(self, name: str) -> str:
        """Return the text in force of a setting on this node."""
        return self._settings.value(name)


class ClientMetricsConfigResource(_StoredConfigResource[ClientMetricsSubscriptions]):
    """A subscription to metrics of clients. Its lists can only be set, as in Apache Kafka."""

    keys: Collection[str] = CLIENT_METRICS_KEYS
    list_settings: frozenset[str] = frozenset()

    def entries(self) -> Entries:
        """Return all settings, as they are shown."""
        return client_metrics_entries(self._settings, self._name)

    def value(self, name: str) -> str:
        """Return the text in force of a setting."""
        return _described_value(self.entries(), name)


class GroupConfigResource(_StoredConfigResource[GroupSettings]):
    """A group."""

    keys: Collection[str] = GROUP_KEYS
    list_settings = _lists(GROUP_KEYS)

    def entries(self) -> Entries:
        """Return all settings, as they are shown."""
        return group_entries(self._settings, self._name)

    def value(self, name: str) -> str:
        """Return the text in force of a setting."""
        return _described_value(self.entries(), name)

"""Configuration targets: the things whose settings can be altered, behind one face.

Rule: a target changes as a whole or not at all.
Must not know: the messages of the APIs that use it.
"""

from collections.abc import Mapping
from typing import Protocol

from gateway.broker_settings import ALTERABLE, BrokerSettings
from gateway.config_resources import (
    Resource,
    ResourceType,
    alter_topic,
    find_alterable_topic,
)
from gateway.context import RequestContext
from topics import CONFIG_KEYS, ConfigType, InvalidConfig, Topic, describe
from topics.config_keys import ConfigKey


class Target(Protocol):
    """One thing that has settings."""

    keys: Mapping[str, ConfigKey]
    """The settings that it can have."""

    def value(self, name: str) -> str:
        """Return the text in force of one of them."""
        ...

    async def alter(
        self, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings, or only check the changes; None takes a setting back."""
        ...


def find_target(context: RequestContext, resource: Resource) -> Target:
    """Return what a resource stands for.

    Raises:
        Refused: its configuration cannot be altered.
        TopicsError: there is no such topic.
    """
    if resource.resource_type == ResourceType.BROKER:
        settings = context.services.broker_settings
        settings.of(resource.resource_name)
        return BrokerTarget(settings, resource.resource_name)
    return TopicTarget(context, find_alterable_topic(context, resource))


def current_list(target: Target, name: str) -> list[str]:
    """Return the elements of a setting that is a list.

    Raises:
        InvalidConfig: it is none.
    """
    key = target.keys.get(name)
    if key is None or key.type is not ConfigType.LIST:
        raise InvalidConfig(f"{name}: expected a setting that is a list")
    return [element for element in target.value(name).split(",") if element]


class TopicTarget:
    """A topic."""

    keys: Mapping[str, ConfigKey] = CONFIG_KEYS

    def __init__(self, context: RequestContext, topic: Topic) -> None:
        self._context = context
        self._topic = topic

    def value(self, name: str) -> str:
        """Return the text in force of a setting."""
        entries = describe(self._topic.configs, self._context.services.registry.defaults)
        return next(entry.value for entry in entries if entry.name == name)

    async def alter(
        self, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings, or only check the changes; None takes a setting back."""
        await alter_topic(
            self._context, self._topic, changes, replace=replace, validate_only=validate_only
        )


class BrokerTarget:
    """This node, or all nodes."""

    keys: Mapping[str, ConfigKey] = ALTERABLE

    def __init__(self, settings: BrokerSettings, name: str) -> None:
        self._settings = settings
        self._name = name

    def value(self, name: str) -> str:
        """Return the text in force of a setting."""
        return self._settings.value(name)

    async def alter(
        self, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings, or only check the changes; None takes a setting back."""
        await self._settings.alter(
            self._name, changes, replace=replace, validate_only=validate_only
        )

"""Settings: with dots, as Kafka writes them, and with underscores, as Python's keywords do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

Value = TypeVar("Value")


def dotted(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Give the same settings in Kafka's spelling."""
    return {key.replace("_", "."): value for key, value in settings.items()}


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The value of `authorizer.class.name` that switches access rules on."""

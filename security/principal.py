"""Principal: the identity of a client, in the terms of Apache Kafka (KIP-11).

Rule: two principals are equal if their types and names are, upper and lower case apart.
"""

from typing import Final, NamedTuple

USER: Final = "User"
"""The only type of principal that a client can have."""


class Principal(NamedTuple):
    """The user of a connection."""

    name: str
    principal_type: str = USER

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")
"""A client that did not authenticate."""
EVERYONE: Final = Principal("*")
"""In rules: every user."""


BROKER: Final = Principal("broker", "Broker")
"""Another broker of the cluster; only this object is, not what has the same name and type."""


def parse_principal(text: str) -> Principal:
    """Return the principal that `TYPE:NAME` names; a name may hold colons.

    Raises:
        ValueError: the text has no colon, or nothing on one side of it.
    """
    principal_type, colon, name = text.partition(":")
    if not (principal_type and colon and name):
        raise ValueError(f"principal {text!r}, expected TYPE:NAME such as User:alice")
    return Principal(name, principal_type)

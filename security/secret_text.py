"""SecretText: a text that no log line, message or representation of an object shows.

Rule: comparing and encoding use the value; formatting shows a placeholder.
Must not know: whose secret it is.
"""


class SecretText(str):
    """A password or a key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"

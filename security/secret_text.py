"""SecretText: a text that no log line, message or representation of an object shows.

Rule: whoever needs the value uses the text itself; whatever formats it gets a mark.
Must not know: whose secret it is.
"""


class SecretText(str):
    """A password or a key."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"

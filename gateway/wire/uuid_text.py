"""Ids as text, as Kafka's tools and clients write them: 22 characters of URL-safe base64.

Rule: every id has one text, and other forms are refused.
Must not know: the meaning of an id.
"""

import base64
import binascii
from uuid import UUID

_SIZE = 22


def uuid_text(value: UUID) -> str:
    """Return an id as text."""
    return base64.urlsafe_b64encode(value.bytes)[:_SIZE].decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """Return the id of a text.

    Raises:
        ValueError: the text is no id.
    """
    try:
        value = UUID(bytes=base64.b64decode(f"{text}==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        value = None
    if value is None or uuid_text(value) != text:
        raise ValueError(f"expected an id of {_SIZE} characters, got {text[: _SIZE * 2]!r}")
    return value

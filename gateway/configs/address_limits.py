"""Address limits: parses `max.connections.per.ip.overrides`.

Rule: `address:count`, separated by commas; an address has one spelling, that of sockets.
Must not know: connections.
"""

from socket import AF_INET, AF_INET6, inet_ntop, inet_pton


def is_address(text: str) -> bool:
    """Return whether that is an address, spelled as sockets spell it."""
    family = AF_INET6 if ":" in text else AF_INET
    try:
        return inet_ntop(family, inet_pton(family, text)) == text
    except (OSError, ValueError):
        return False


def parse_overrides(text: str) -> dict[str, int]:
    """Return the limits by address.

    Raises:
        ValueError: it is of another form.
    """
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        address, _, count = map(str.strip, part.rpartition(":"))
        if not is_address(address) or not (count.isascii() and count.isdigit()):
            raise ValueError(f"expected address:count, got {part!r}")
        found[address] = int(count)
    return found

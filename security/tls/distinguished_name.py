"""Distinguished names: the subject of a certificate, as Kafka names its principal (RFC 2253).

    Certificate ::= SEQUENCE { TBSCertificate ::= SEQUENCE {
        [0] version, serialNumber, signature, issuer, validity, subject Name, ... }, ... }
    Name ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value }

Rule: pure; the text is what Java's `X500Principal.getName` returns: the last name first, types
without a short name as numbers with their value in hexadecimal digits.
Must not know: whether the certificate is valid; only a verified one gets here.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

NAME_MAX: Final = 4_096
"""Characters of a name."""
_INTEGER, _OBJECT_ID, _SEQUENCE, _SET, _VERSION = 0x02, 0x06, 0x30, 0x31, 0xA0
_TEXTS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString
    0x16: "ascii",  # IA5String
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',+<>;"\\=#')


class InvalidCertificate(ValueError):
    """The bytes are no certificate whose subject can be read."""


class _Element(NamedTuple):
    """One element of DER: its tag, its content, and the whole of it."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER.

    Raises:
        InvalidCertificate: it cannot be read, or is too long.
    """
    signed = next(_elements(_only(certificate, _SEQUENCE)))
    fields = [each for each in _elements(signed.content) if each.tag != _VERSION]
    if signed.tag != _SEQUENCE or len(fields) < 5 or fields[0].tag != _INTEGER:
        raise InvalidCertificate("expected a certificate of X.509")
    names = [_relative_name(each) for each in _elements(fields[4].content)]
    name = ",".join(reversed(names))
    if fields[4].tag != _SEQUENCE or len(name) > NAME_MAX:
        raise InvalidCertificate(f"expected a subject of at most {NAME_MAX} characters")
    return name


def _relative_name(element: _Element) -> str:
    if element.tag != _SET:
        raise InvalidCertificate("expected a set in the subject")
    return "+".join(_attribute(each) for each in _elements(element.content))


def _attribute(element: _Element) -> str:
    parts = list(_elements(element.content))
    if element.tag != _SEQUENCE or len(parts) != 2 or parts[0].tag != _OBJECT_ID:
        raise InvalidCertificate("expected type and value in the subject")
    kind, value = _object_id(parts[0].content), parts[1]
    short_name = _SHORT_NAMES.get(kind)
    if short_name is None or value.tag not in _TEXTS:
        return f"{short_name or kind}=#{value.whole.hex()}"
    try:
        text = value.content.decode(_TEXTS[value.tag])
    except UnicodeDecodeError:
        raise InvalidCertificate("expected text in the subject") from None
    return f"{short_name}={_escaped(text)}"


def _escaped(text: str) -> str:
    shown = "".join(
        "\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in text
    )
    lead = len(shown) - len(shown.lstrip(" "))
    trail = len(shown) - len(shown.rstrip(" ")) if lead < len(shown) else 0
    middle = shown[lead : len(shown) - trail]
    return "\\ " * lead + middle + "\\ " * trail


def _object_id(content: bytes) -> str:
    numbers, number = list[int](), 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise InvalidCertificate("expected a type in the subject")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _only(data: bytes, tag: int) -> bytes:
    element = next(_elements(data), None)
    if element is None or element.tag != tag:
        raise InvalidCertificate("expected a certificate of X.509")
    return element.content


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        start = position
        header = data[position : position + 2]
        if len(header) < 2:
            raise InvalidCertificate("expected tag and length")
        tag, size = header
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count], "big")
            position += count
            if not 1 <= count <= 4:
                raise InvalidCertificate("expected a length of at most 4 bytes")
        if position + size > len(data):
            raise InvalidCertificate("a length is more than there is")
        yield _Element(tag, data[position : position + size], data[start : position + size])
        position += size

"""Codec: messages to bytes and back, by functions compiled per class and version.

    request = decode(HeartbeatRequest, 4, frame, header.body_start)
    body = encode(HeartbeatResponse(error_code=27), 4)

A function is compiled when its class and version are first used. Bytes behind the last field are
ignored, as Kafka does, and so are tagged fields that the schema does not know.

Rule: bytes of a peer give a message or a MalformedMessage, and never cost more memory than a
fixed multiple of what arrived.
Must not know: connections, handlers, what a message means.
"""

from typing import Any, NoReturn, TypeVar

from kledger.gateway.wire.decode_source import compile_decoder
from kledger.gateway.wire.encode_source import compile_encoder
from kledger.gateway.wire.errors import MalformedMessage, UnsupportedVersion
from kledger.gateway.wire.primitives import Buffer
from kledger.gateway.wire.schema import ApiMessage

M = TypeVar("M", bound=ApiMessage)


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> M:
    """Read one message body.

    Args:
        cls: the message class.
        version: API version, one the class has.
        buf: the frame; `records` fields become views of it, everything else is copied.
        pos: where the body starts.

    Raises:
        MalformedMessage: the bytes do not follow the schema.
        UnsupportedVersion: the class has no such version.
    """
    try:
        function = cls.__decoders__[version]
    except KeyError:
        _check_version(cls, version)
        function = cls.__decoders__[version] = compile_decoder(cls, version)
    message: M = function(buf, pos)
    return message


def explain_fault(
    cls: type[ApiMessage], version: int, buf: Buffer, pos: int, fault: Exception
) -> NoReturn:
    """Raise for a body that a parser written by hand refused.

    The compiled decoder finds the same fault and names the field; if it finds none, the error of
    the parser is raised.

    Raises:
        MalformedMessage: always.
    """
    decode(cls, version, buf, pos)
    raise MalformedMessage(
        cls.__api__.name, version, position=pos, field="?", expected="a body", got=str(fault)
    ) from None


def encode(message: ApiMessage, version: int) -> bytes:
    """Write one message body.

    Raises:
        UnencodableMessage: a value does not fit its field.
        UnsupportedVersion: the class has no such version.
    """
    return b"".join(encode_parts(message, version))


def encode_parts(message: ApiMessage, version: int) -> list[Any]:
    """Write one message body as buffers that follow each other; see `encode`."""
    cls = type(message)
    try:
        function = cls.__encoders__[version]
    except KeyError:
        _check_version(cls, version)
        function = cls.__encoders__[version] = compile_encoder(cls, version)
    parts: list[Any] = []
    function(message, parts)
    return parts


def _check_version(cls: type[ApiMessage], version: int) -> None:
    if version not in cls.__api__.versions:
        raise UnsupportedVersion(cls.__name__, version, str(cls.__api__.versions))

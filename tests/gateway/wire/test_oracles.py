"""The codec against two independent ones: kio and kafka-python, for every message and version.

Each message goes ours -> theirs -> ours: they read our bytes and write what they read, and that
must be our bytes again. What they cannot do, and how the messages are tamed for it:

- kio converts error codes into an enum and timestamps and durations into datetime objects, so only
  known codes and times from 1970 on are drawn. It raises KeyError on a tag that it does not know,
  where the protocol says to step over it, so no unknown tag is sent to it.
- kafka-python reads an ApiVersions response that has an error as version 0, whatever the version
  (which is what a broker sends for a version it does not know), so that one has no error here.
  It accepts a null where none is allowed and reads records as a copy: it cannot check these.
- kafka-python has no consumer groups of KIP-848, no delegation tokens and no telemetry.
- Neither refuses a string of more than 32,767 bytes; none is drawn.
"""

from importlib import import_module
from io import BytesIO
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import kio.serial
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsResponse
from kledger.gateway.wire.schema import ApiMessage
from tests.gateway.wire.facts import STEMS, messages, versions
from tests.gateway.wire.random_messages import message_of, settle

UNKNOWN_TO_KAFKA_PYTHON = {38, 39, 40, 41, 68, 69, 71, 72}
quick = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
every_message = pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)
known_to_kafka_python = pytest.mark.parametrize(
    "cls",
    [cls for cls in messages() if cls.__api__.key not in UNKNOWN_TO_KAFKA_PYTHON],
    ids=lambda cls: cls.__name__,
)


def kio_class(cls: type[ApiMessage], version: int) -> Any:
    part = "request" if cls.__name__.endswith("Request") else "response"
    module = import_module(f"kio.schema.{STEMS[cls.__api__.key]}.v{version}.{part}")
    return getattr(module, cls.__name__)


@every_message
@quick
@given(data=st.data())
def test_kio_reads_and_writes_the_same_bytes(cls: type[ApiMessage], data: st.DataObject) -> None:
    drawn = data.draw(message_of(cls, is_tame=True))
    for version in versions(cls):
        settled = settle(drawn, version)
        body = encode(settled, version)
        theirs, size = kio.serial.entity_reader(kio_class(cls, version))(body, 0)
        out = BytesIO()
        kio.serial.entity_writer(kio_class(cls, version))(out, theirs)
        assert len(body) == size, version
        assert body == out.getvalue(), version
        assert settled == decode(cls, version, out.getvalue()), version


KAFKA_PYTHON = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)


def kafka_python_class(cls: type[ApiMessage]) -> Any:
    (found,) = (getattr(one, cls.__name__) for one in KAFKA_PYTHON if hasattr(one, cls.__name__))
    return found


@known_to_kafka_python
@quick
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same_bytes(
    cls: type[ApiMessage], data: st.DataObject
) -> None:
    drawn = data.draw(message_of(cls, is_tame=True))
    if isinstance(drawn, ApiVersionsResponse):
        drawn.error_code = 0
    for version in versions(cls):
        settled = settle(drawn, version)
        body = encode(settled, version)
        theirs = kafka_python_class(cls).decode(body, version=version)
        theirs._header = None  # its decoder leaves the slot empty, its encoder looks there
        written = bytes(theirs.encode(version=version))
        assert body == written, version
        assert settled == decode(cls, version, written), version

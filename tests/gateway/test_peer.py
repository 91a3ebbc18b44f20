"""What the software of a client says about it."""

import pytest

from kledger.gateway.peer import Peer


@pytest.mark.parametrize(
    ("name", "version", "is_librdkafka", "knows_brokers_by_id"),
    [
        ("librdkafka", "2.0.2", True, False),
        ("librdkafka", "2.9.0", True, False),
        ("librdkafka", "2.10.0", True, True),
        ("librdkafka", "v3.0.0-RC1", True, True),
        ("librdkafka", "unknown", True, False),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", True, True),
        ("confluent-kafka-python", "2.10.1-rdkafka-2.8.0", True, False),
        ("confluent-kafka-go", "v2.3.0-librdkafka-2.10.1", True, True),
        ("kcat", "1.7.1-librdkafka-2.0.2", True, False),
        ("apache-kafka-java", "4.1.0", False, False),
        ("unknown", "unknown", False, False),
    ],
)
def test_librdkafka_is_known_by_name_and_version(
    name: str, version: str, *, is_librdkafka: bool, knows_brokers_by_id: bool
) -> None:
    peer = Peer("127.0.0.1", software_name=name, software_version=version)
    assert is_librdkafka == peer.is_librdkafka
    assert knows_brokers_by_id == peer.knows_brokers_by_id

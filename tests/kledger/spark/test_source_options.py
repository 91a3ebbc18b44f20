"""Options mean what they mean for Spark's kafka source; wrong ones are refused by name."""

from __future__ import annotations

import pytest

from kledger.security.client.client_security import INSECURE, PasswordLogin
from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition
from kledger.spark.source_options import (
    Bound,
    InvalidOption,
    offsets_json,
    offsets_of,
    read_options,
)

BASE = {"servers": "h:1", "subscribe": "a"}


def test_defaults_are_those_that_are_documented() -> None:
    options = read_options(BASE)
    assert ("h:1", ("a",)) == (options.servers, options.topics)
    assert (options.start, options.end) == (None, Bound(kind="offsets", everywhere=LATEST))
    assert (True, True, False) == (
        options.is_committed,
        options.fails_on_data_loss,
        options.with_headers,
    )


def test_names_have_no_case_and_kafkas_name_of_the_servers_works() -> None:
    options = read_options({"KAFKA.bootstrap.servers": "h:1,i:2", "SUBSCRIBE": "a, b"})
    assert ("h:1,i:2", ("a", "b")) == (options.servers, options.topics)


def test_bounds_are_offsets_or_times() -> None:
    where = KafkaPartition("a", 0)
    for given, start in (
        ({"startingOffsets": "earliest"}, Bound(kind="offsets", everywhere=EARLIEST)),
        ({"startingOffsets": "Latest"}, Bound(kind="offsets", everywhere=LATEST)),
        ({"startingOffsets": '{"a": {"0": 5}}'}, Bound(kind="offsets", each={where: 5})),
        ({"startingOffsets": '{"a": {"0": -2}}'}, Bound(kind="offsets", each={where: -2})),
        ({"startingTimestamp": "5"}, Bound(kind="times", everywhere=5)),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, Bound(kind="times", each={where: 5})),
        (
            {"startingTimestamp": "5", "startingOffsets": "latest"},
            Bound(kind="times", everywhere=5),
        ),
    ):
        assert start == read_options(BASE | given).start


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"startOffsets": "x"}, "unknown option 'startOffsets'; the known ones are assign, "),
        ({"servers": ""}, "option 'servers' is missing"),
        ({"mode": "fast"}, "option 'mode': expected broker or direct, got 'fast'"),
        ({"mode": "direct"}, "option 'path' is missing"),
        ({"path": "s3://b"}, "option 'path' is for mode=direct"),
        ({"storage.region": "x"}, "option 'storage.region' is for mode=direct"),
        ({"assign": '{"a": [0]}'}, "expected one of .* got subscribe and assign"),
        ({"subscribe": ","}, "option 'subscribe': expected topics"),
        ({"startingOffsets": "first"}, "option 'startingOffsets': expected JSON, got 'first'"),
        ({"startingOffsets": "[1]"}, "option 'startingOffsets': expected {\"topic\""),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "offset -3 of a-0, expected at least -2"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "offset -2 of a-0, expected at least -1"),
        ({"endingOffsets": "earliest"}, "option 'endingOffsets': expected latest"),
        ({"startingTimestamp": "-5"}, "option 'startingTimestamp': expected milliseconds"),
        ({"minPartitions": "0"}, "option 'minPartitions': expected a number above 0, got '0'"),
        ({"maxOffsetsPerTrigger": "x"}, "option 'maxOffsetsPerTrigger': expected a number"),
        ({"failOnDataLoss": "maybe"}, "option 'failOnDataLoss': expected true or false"),
        ({"kafka.isolation.level": "x"}, "expected read_committed or read_uncommitted"),
    ],
)
def test_wrong_options_are_refused_by_name(change: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_options(BASE | change)


def test_no_topic_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"expected one of the options .* got none"):
        read_options({"servers": "h:1"})


def test_offsets_keep_the_form_of_sparks_kafka_source() -> None:
    offsets = {KafkaPartition("b", 10): 5, KafkaPartition("a", 0): 42, KafkaPartition("b", 2): 1}
    assert {"a": {"0": 42}, "b": {"2": 1, "10": 5}} == offsets_json(offsets)
    assert offsets == offsets_of(offsets_json(offsets))


def test_options_of_security_count_for_brokers_alone() -> None:
    given = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "KAFKA.SASL.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'a.B required username="ann" password="s3cret";',
    }
    security = read_options({**BASE, **given}).security
    assert PasswordLogin(mechanism="PLAIN", user="ann", password="s3cret") == security.login
    direct = {"mode": "direct", "path": "file:///tier", "subscribe": "a"}
    assert INSECURE == read_options({**direct, **given}).security


def test_wrong_options_of_security_are_named_without_a_secret() -> None:
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    wrong = {"kafka.sasl.jaas.config": 'a.B required password="s3cret";'}
    with pytest.raises(InvalidOption, match=r"^option kafka\.sasl\.jaas\.config: ") as caught:
        read_options({**BASE, **given, **wrong})
    assert "s3cret" not in str(caught.value)

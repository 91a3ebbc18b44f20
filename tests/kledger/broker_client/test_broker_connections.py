"""What the client does with brokers that cannot be reached, and with errors that pass."""

from __future__ import annotations

import pytest

from kledger.broker_client.broker_connection import ConnectionLost
from kledger.broker_client.broker_connections import BrokerConnections, KafkaFailed, check
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from kledger.testing import FaultyServer

NOBODY = "127.0.0.1:1"


def test_the_first_broker_that_can_be_reached_is_asked() -> None:
    with (
        FaultyServer() as server,
        BrokerConnections(f"{NOBODY}, {server.kafka_address}", client_id="test") as brokers,
    ):
        answer = brokers.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert [server.kafka_address] == [f"{each.host}:{each.port}" for each in answer.brokers]


def test_without_any_broker_the_connection_is_lost() -> None:
    with (
        BrokerConnections(NOBODY, client_id="test") as brokers,
        pytest.raises(ConnectionLost, match=NOBODY),
    ):
        brokers.ask(MetadataRequest(topics=[]), MetadataResponse)


def test_only_errors_that_pass_are_tried_again() -> None:
    codes = [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]

    def attempt() -> int:
        check("attempt", codes.pop(0))
        return len(codes)

    with BrokerConnections(NOBODY, client_id="test") as brokers:
        assert 1 == brokers.retried(attempt), "the second attempt"
        with pytest.raises(KafkaFailed, match="attempt: INVALID_TOPIC_EXCEPTION"):
            brokers.retried(attempt)


def test_without_retries_there_is_one_attempt() -> None:
    attempts = []

    def attempt() -> None:
        attempts.append(1)
        check("attempt", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    with (
        BrokerConnections(NOBODY, client_id="test", retries=0) as brokers,
        pytest.raises(KafkaFailed, match="COORDINATOR_LOAD_IN_PROGRESS"),
    ):
        brokers.retried(attempt)
    assert 1 == len(attempts)


def test_an_address_without_a_port_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        BrokerConnections("somewhere", client_id="test")

"""The client of Spark with TLS and logins, against a server with such a listener."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kledger.broker_client.broker_connection import TlsRefused
from kledger.broker_client.broker_connections import KafkaFailed
from kledger.spark.data_source import BatchReader
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.sink import end_all, write_task
from kledger.spark.sink_options import read_sink_options
from kledger.spark.source_options import SourceOptions, read_options
from kledger.testing import FaultyServer
from tests.kledger.spark.test_sink import COLUMNS, WAIT_S, rows
from tests.security.certificates import authority

USER, PASSWORD = "ann", "ann-pw"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="{USER}" password="{PASSWORD}";'


class SecuredServer:
    """A server with one listener, and what clients need."""

    def __init__(self, server: FaultyServer, protocol: str, folder: Path) -> None:
        self.server, self.protocol, self.folder = server, protocol, folder

    def options(self, **changed: str) -> dict[str, str]:
        """Return the options of a client that is accepted, or changed ones."""
        found = {
            "servers": self.server.kafka_address,
            "kafka.security.protocol": self.protocol,
            "kafka.sasl.mechanism": MECHANISMS[-1],
            "kafka.sasl.jaas.config": JAAS,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / "ca.pem"),
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(self.folder / "client.pem"),
        }
        return found | {f"kafka.{name.replace('_', '.')}": each for name, each in changed.items()}

    def admin(self) -> AdminClient:
        own = str(self.folder / "client.pem")
        files = {
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "ssl.certificate.location": own,
            "ssl.key.location": own,
        }
        login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        given: dict[str, Any] = {
            "bootstrap.servers": self.server.kafka_address,
            "security.protocol": self.protocol,
        }
        given |= files if self.protocol.endswith("SSL") else {}
        given |= login if self.protocol.startswith("SASL") else {}
        return AdminClient(given)


@contextmanager
def running(protocol: str, folder: Path, host: str = "127.0.0.1") -> Iterator[SecuredServer]:
    """A server that demands certificates or logins; its certificate is for 127.0.0.1."""
    server, client = authority().issue("server", is_server=True), authority().issue("client")
    (folder / "server.pem").write_text(server.key + server.certificate)
    (folder / "client.pem").write_text(client.key + client.certificate)
    (folder / "ca.pem").write_text(authority().pem)
    settings: dict[str, object] = {
        "listeners": f"{protocol}://{host}:0",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required" if protocol == "SSL" else "none",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "0",
    }
    if protocol.startswith("SASL"):
        users = f'{MODULE} required user_{USER}="{PASSWORD}";'
        settings[f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"] = users
    with FaultyServer(settings=settings) as started:
        yield SecuredServer(started, protocol, folder)


@pytest.fixture(params=["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SecuredServer]:
    """A server with a topic, and with a user for each mechanism."""
    with running(request.param, tmp_path) as found:
        admin = found.admin()
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(WAIT_S)
        kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        changes = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(each, 4096), PASSWORD.encode())
            for each in kinds
        ]
        for change in changes if request.param.startswith("SASL") else ():
            for outcome in admin.alter_user_scram_credentials([change]).values():
                outcome.result(WAIT_S)
        yield found


only_ssl = pytest.mark.parametrize("secured", ["SSL"], indirect=True)
only_logins = pytest.mark.parametrize("secured", ["SASL_SSL", "SASL_PLAINTEXT"], indirect=True)


def values(options: SourceOptions) -> list[int]:
    reader = BatchReader(options)
    return sorted(
        int(row["value"])
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    )


def topics(options: dict[str, str]) -> dict[str, int]:
    read = read_options({**options, "subscribe": "orders"})
    with KafkaClient(read.servers, read.security) as client:
        return client.topics()


def test_rows_are_written_and_read(secured: SecuredServer) -> None:
    """The options go to other processes, which have no files of the driver."""
    sink = read_sink_options(secured.options() | {"topic": "orders"}, COLUMNS)
    source = read_options(secured.options() | {"subscribe": "orders"})
    for name in ("ca.pem", "client.pem"):
        (secured.folder / name).unlink()
    sink, source = pickle.loads(pickle.dumps((sink, source)))
    message = write_task(sink, rows(1, 2, 3), name="w-", split=0, attempt=0)
    end_all(sink, [message], name="w-", is_commit=True)
    assert [1, 2, 3] == values(source)


@only_logins
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_opens(secured: SecuredServer, mechanism: str) -> None:
    assert {"orders": 2} == topics(secured.options(sasl_mechanism=mechanism))


@only_logins
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_at_once(secured: SecuredServer, mechanism: str) -> None:
    wrong = secured.options(
        sasl_mechanism=mechanism, sasl_jaas_config=JAAS.replace(PASSWORD, "other-pw")
    )
    with pytest.raises(KafkaFailed, match=f"login with {mechanism}: .*AUTHENTICATION") as caught:
        topics(wrong)
    assert "other-pw" not in str(caught.value)


@only_logins
def test_a_session_that_has_ended_is_begun_again(secured: SecuredServer) -> None:
    """A broker closes connections whose session is over, as it does when it restarts."""
    read = read_options(secured.options() | {"subscribe": "orders"})
    with KafkaClient(read.servers, read.security) as client:
        assert {"orders": 2} == client.topics()
        secured.server.fail_next("Metadata")
        assert {"orders": 2} == client.topics()


@only_ssl
def test_a_server_of_another_authority_is_refused_at_once(secured: SecuredServer) -> None:
    (secured.folder / "ca.pem").write_text(authority("another").pem)
    with pytest.raises(TlsRefused, match=r"TLS: .*certificate"):
        topics(secured.options())


def test_a_certificate_for_another_name_counts_only_if_names_do_not(tmp_path: Path) -> None:
    with running("SSL", tmp_path, host="127.0.0.2") as secured:
        with pytest.raises(TlsRefused, match=r"TLS: .*127\.0\.0\.2"):
            topics(secured.options())
        assert {} == topics(secured.options(ssl_endpoint_identification_algorithm=""))


@only_ssl
def test_a_client_without_a_certificate_is_refused_at_once(secured: SecuredServer) -> None:
    options = secured.options()
    for name in ("kafka.ssl.keystore.type", "kafka.ssl.keystore.location"):
        del options[name]
    with pytest.raises(TlsRefused, match=r"TLS: .*CERTIFICATE_REQUIRED"):
        topics(options)

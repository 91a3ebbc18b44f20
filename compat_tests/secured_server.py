"""A server with TLS, logins and certificates of clients, and how clients connect to it.

Rule: one server with three listeners and one user. What a client sends on one listener, librdkafka
reads on another.
Must not know: tests.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.certificates import write_certificates
from compat_tests.deadlines import WAIT_S
from compat_tests.servers import KledgerServer

USER, PASSWORD = "alice", "alice-password"
MECHANISM: Final = "SCRAM-SHA-512"
LISTENERS: Final = ("SASL_SSL", "SSL")
of_listeners = pytest.mark.parametrize("listener", LISTENERS)


@dataclass(frozen=True)
class SecuredServer:
    """A running server: addresses by listener, and the files of its clients."""

    addresses: dict[str, str]
    folder: Path

    @property
    def open_address(self) -> str:
        """The address of the listener that asks for nothing."""
        return self.addresses["PLAINTEXT"]

    @property
    def authority(self) -> str:
        """The certificate of the authority."""
        return str(self.folder / "ca.pem")

    @property
    def own(self) -> str:
        """The key and the certificate of a client."""
        return str(self.folder / "client.pem")

    def librdkafka(self, listener: str, **changed: str) -> dict[str, Any]:
        """Return the settings of librdkafka for a listener."""
        found = {"bootstrap.servers": self.addresses[listener], "security.protocol": listener}
        if listener != "PLAINTEXT":
            found["ssl.ca.location"] = self.authority
        if listener == "SSL":
            found |= {"ssl.certificate.location": self.own, "ssl.key.location": self.own}
        if listener == "SASL_SSL":
            found |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
        return found | changed

    def python(self, listener: str) -> dict[str, Any]:
        """Return the settings of aiokafka and of kafka-python for a listener."""
        context = ssl.create_default_context(cafile=self.authority)
        if listener == "SSL":
            context.load_cert_chain(self.own)
        found = {
            "bootstrap_servers": self.addresses[listener],
            "security_protocol": listener,
            "ssl_context": context,
        }
        if listener == "SASL_SSL":
            found |= {
                "sasl_mechanism": MECHANISM,
                "sasl_plain_username": USER,
                "sasl_plain_password": PASSWORD,
            }
        return found

    def java(self, listener: str) -> dict[str, str]:
        """Return the settings of Kafka's own clients for a listener."""
        found = {
            "security.protocol": listener,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }
        if listener == "SSL":
            return found | {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.own}
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        return found | {
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{module} username="{USER}" password="{PASSWORD}";',
        }

    def properties_file(self, listener: str) -> str:
        """Write the file of properties for Kafka's tools; return its path."""
        file = self.folder / f"{listener}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.java(listener).items()))
        return str(file)

    def environment(self, listener: str) -> dict[str, str]:
        """Return the variables for the programs of `compat_tests.programs`."""
        if listener == "SSL":
            return {"CLIENT_CA": self.authority, "CLIENT_CERTIFICATE": self.own}
        return {"CLIENT_CA": self.authority, "CLIENT_USER": USER, "CLIENT_PASSWORD": PASSWORD}

    def first_value(self, topic: str, listener: str = "PLAINTEXT") -> bytes | None:
        """Return the first record of a topic, as librdkafka reads it on a listener."""
        consumer = Consumer(
            self.librdkafka(listener) | {"group.id": topic, "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe([topic])
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None, message.error()
            return message.value()
        finally:
            consumer.close()


@contextmanager
def running_securely(server: KledgerServer) -> Iterator[SecuredServer]:
    """Start a server with further settings, and keep what clients need in its folder."""
    folder = server.folder
    write_certificates(folder)
    addresses = server.listen_as("PLAINTEXT", *LISTENERS)
    secured = {
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": MECHANISM,
    }
    server.settings |= secured
    with server:
        server.secrets.add(PASSWORD)
        found = SecuredServer(addresses, folder)
        _add_user(found)
        yield found


def _add_user(secured: SecuredServer) -> None:
    """Add the user as Kafka's clients do."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = AdminClient(secured.librdkafka("PLAINTEXT"))
    for outcome in admin.alter_user_scram_credentials([change]).values():
        outcome.result(WAIT_S)

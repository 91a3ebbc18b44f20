"""TLS cases: what encryption costs a server, with Kafka's own tools as its clients.

Rule: both servers have the same certificate, and TLS as it is by default. They run for the whole
case and have seen the load before it is measured, as a virtual machine compiles what it sees often;
with --quick it still does so while it is measured, and the ratio says little. Topics are made, and
filled for readers, on a listener without TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import clients
from benchmarks.cases import Case
from benchmarks.clients import Figures
from benchmarks.shared_cases import rates
from benchmarks.testbed import Testbed, create_topic, measured
from compat_tests.certificates import write_certificates
from compat_tests.servers import ApacheKafkaServer, KledgerServer, ServerProcess

_PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"


@dataclass(frozen=True, slots=True)
class _Secured:
    """A running server.

    Attributes:
        address: of its listener with TLS.
        client_config: a file of Kafka's client properties for that.
    """

    server: ServerProcess
    address: str
    client_config: Path


def prepared(
    case: Case, testbed: Testbed, exits: ExitStack
) -> Callable[[Case, str, Testbed], Figures]:
    """Start and warm up a server of each subject; return what measures a round."""
    secured = {each: exits.enter_context(_secured(each, testbed)) for each in case.subjects}
    for subject, each in secured.items():
        _load(case, subject, each)
    return lambda case, subject, _: _load(case, subject, secured[subject])


def _load(case: Case, subject: str, secured: _Secured) -> Figures:
    """Write all records, or read them after librdkafka has written them without TLS."""
    topic = create_topic(subject, secured.server.bootstrap, case.partitions)
    work = clients.java_produce
    if case.kind == "tls-consume":
        clients.produce(replace(case, client="librdkafka"), secured.server.bootstrap, topic)
        work = clients.java_consume
    with measured(secured.server) as usage:
        found = work(case, secured.address, topic, client_config=secured.client_config)
    return rates(case, found, cpu_s=usage.cpu_s)


@contextmanager
def _secured(subject: str, testbed: Testbed) -> Iterator[_Secured]:
    with testbed.own_server(subject) as server:
        assert isinstance(server, ApacheKafkaServer | KledgerServer), subject
        server.prepare()
        folder, address = server.folder, f"{server.host}:{server.reserve_port()}"
        write_certificates(folder)
        listeners = f"PLAINTEXT://{server.bootstrap},SSL://{address}"
        server.settings = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "server.pem"),
        }
        if isinstance(server, ApacheKafkaServer):
            server.settings["listeners"] += f",CONTROLLER://{server.controller}"
            server.settings["listener.security.protocol.map"] = _PROTOCOLS
            server.settings["inter.broker.listener.name"] = "PLAINTEXT"
        server.start()
        yield _Secured(server, address, _client_config(folder))


def _client_config(folder: Path) -> Path:
    file = folder / "client.properties"
    lines = ["security.protocol=SSL", "ssl.truststore.type=PEM"]
    lines.append(f"ssl.truststore.location={folder / 'ca.pem'}")
    file.write_text("\n".join(lines))
    return file

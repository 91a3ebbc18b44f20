"""The server under test, fresh names, and the page that the run writes.

Rule: one server process for the whole run; each test uses topics and groups of its own.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kledger.sync
from compat_tests import peers
from compat_tests.deadlines import PROGRAM_S, WAIT_S
from compat_tests.report_plugin import ReportPlugin
from compat_tests.secured_server import SecuredServer, running_securely
from compat_tests.servers import (
    ApacheKafkaServer,
    ClusterServer,
    ClusterStores,
    KledgerServer,
    NodesServer,
    ServerProcess,
)
from compat_tests.settings import dotted
from compat_tests.tool_jvm import ToolJvm, ToolOutput
from tests.postgres_server import PostgresServer

# The settings that are not defaults: waiting three seconds for each new group, and five until a
# member hears what has changed, teaches nothing.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
# A server that looks for something to compact, or to delete, again and again.
COMPACTING = SETTINGS | {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "300",
}
# A tool lives a second or two: no time to gain from the second compiler or from several collectors.
TOOL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")

# With --nodes a server under test is three processes, and several of these run at a time.
CONNECTIONS_MAX = "300"

POSTGRES = pytest.StashKey[PostgresServer]()

MakeTopic = Callable[..., str]
Tool = Callable[..., str]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the reference in place of kledger."""
    parser.addoption("--server", choices=["kledger", "kafka"], default="kledger")
    parser.addoption("--durability", choices=["fsync", "os"], default="fsync")
    parser.addoption("--workers", type=int, default=0, help="workers of kledger; 0: one process")
    parser.addoption(
        "--cluster",
        action="store_true",
        help="kledger is a broker without a disk; tests marked data_folder are left out",
    )
    parser.addoption(
        "--nodes",
        type=int,
        default=0,
        help="kledger is a cluster of so many nodes, which three servers divide; tests marked "
        "data_folder or one_broker are left out",
    )
    parser.addoption("--kills", type=int, default=20, help="kills of the long crash test")
    parser.addoption("--crash-seed", type=int, default=None, help="seed of the crash tests")


def pytest_configure(config: pytest.Config) -> None:
    """Name the marks, fetch the peers, and write the page at the end (for kledger only)."""
    config.addinivalue_line("markers", "slow: not in the quick part")
    config.addinivalue_line(
        "markers", "workers(reason): make test repeats it with two workers, as leadership matters"
    )
    config.addinivalue_line(
        "markers",
        "data_folder(reason): left out with --cluster and --nodes, as it needs a folder of data",
    )
    config.addinivalue_line(
        "markers", "one_broker(reason): left out with --nodes, as it needs a server that is alone"
    )
    config.addinivalue_line("markers", "peer(name): the client a module is about")
    config.addinivalue_line("markers", "feature(text): what the test tries, a row of the page")
    try:
        peers.fetch()
    except peers.PeerMissing as error:
        raise pytest.UsageError(str(error)) from error
    others = [each for each in ("--cluster", "--nodes", "--workers") if config.getoption(each)]
    if config.getoption("--server") == "kafka":
        others.append("--server kafka")
    if len(others) > 1:
        raise pytest.UsageError(f"{' and '.join(others)} exclude each other")
    if not others:
        page = peers.ROOT / "docs" / "COMPATIBILITY.md"
        config.pluginmanager.register(ReportPlugin(page, config))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the database, after the servers.

    Not in a clean-up of the configuration: pytest-xdist kills a process that takes its time there.
    """
    if (running := session.config.stash.get(POSTGRES, None)) is not None:
        running.remove()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a broker without a disk, or one of several, does not have."""
    left_out = {"--cluster": ["data_folder"], "--nodes": ["data_folder", "one_broker"]}
    for option, names in left_out.items():
        if not config.getoption(option):
            continue
        for item in items:
            for mark in filter(None, map(item.get_closest_marker, names)):
                item.add_marker(pytest.mark.skip(reason=f"with {option}: {mark.args[0]}"))


@pytest.fixture(scope="session")
def server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """The server that all tests share."""
    with make_server(pytestconfig, tmp_path_factory.mktemp("server")) as running:
        yield running


def make_server(
    config: pytest.Config, folder: Path, settings: Mapping[str, str] = SETTINGS
) -> ServerProcess:
    """Build the server that the options name, not started."""
    if config.getoption("--server") == "kafka":
        return ApacheKafkaServer(folder, settings=settings)
    durability = str(config.getoption("--durability"))
    workers = int(config.getoption("--workers"))
    return make_kledger(
        config, folder, settings, durability=durability, is_native=True, workers=workers
    )


def make_kledger(
    config: pytest.Config,
    folder: Path,
    settings: Mapping[str, str] = SETTINGS,
    *,
    durability: str = "fsync",
    is_native: bool = False,
    workers: int = 0,
) -> KledgerServer:
    """Build a kledger on a folder, or what --cluster or --nodes ask for; see KledgerServer."""
    if nodes := int(config.getoption("--nodes")):
        stores = ClusterStores.of_folder(new_database(config), folder / "objects")
        return NodesServer(folder, stores, nodes=nodes, settings=settings, is_native=is_native)
    if config.getoption("--cluster"):
        return ClusterServer(folder, new_database(config), settings=settings, is_native=is_native)
    return KledgerServer(
        folder, durability=durability, settings=settings, is_native=is_native, workers=workers
    )


def new_database(config: pytest.Config) -> str:
    """Return the URL of an empty database; the first call starts PostgreSQL for the whole run."""
    if (running := config.stash.get(POSTGRES, None)) is None:
        running = config.stash[POSTGRES] = PostgresServer()
        running.initialise()
        running.start(max_connections=CONNECTIONS_MAX)
    name = f"compat_{next(_numbers)}"
    running.execute(f"CREATE DATABASE {name}")
    return running.url(name)


@pytest.fixture(scope="session")
def compacting_bootstrap(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of another server, which compacts as soon as there is something to compact."""
    folder = tmp_path_factory.mktemp("compacting-server")
    with make_server(pytestconfig, folder, COMPACTING) as running:
        yield running.bootstrap


@pytest.fixture(scope="session")
def bootstrap(server: ServerProcess) -> str:
    """The address for the clients."""
    return server.bootstrap


@pytest.fixture(scope="session")
def secured(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredServer]:
    """A kledger whose clients need a login, or a certificate."""
    server = make_kledger(pytestconfig, tmp_path_factory.mktemp("secured-server"))
    with running_securely(server) as running:
        yield running


@pytest.fixture
def native_url(server: ServerProcess) -> str:
    """The address for native clients."""
    if not isinstance(server, KledgerServer):
        pytest.skip("Apache Kafka has no native façade")
    return f"kledger://{server.native_address}"


@pytest.fixture
def namespaced_topic(native_url: str, topic: str) -> str:
    """The name of a topic that does not exist yet, in a namespace of its own that does."""
    namespace = f"compat/{topic}"
    with kledger.sync.connect(native_url) as client:
        client.create_namespace(namespace)
    return f"{namespace}/orders"


_numbers = itertools.count(1)


def fresh_name(request: pytest.FixtureRequest) -> str:
    """Give a name that no other test uses, telling which test it is."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{request.node.name}-{next(_numbers)}")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that does not exist yet."""
    return fresh_name(request)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """The name of a group that does not exist yet."""
    return fresh_name(request)


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, bootstrap: str) -> MakeTopic:
    """Create a fresh topic and give its name."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = fresh_name(request)
        create_topic(bootstrap, name, partitions, configs)
        return name

    return make


def create_topic(bootstrap: str, name: str, partitions: int, configs: dict[str, str]) -> None:
    """Create a topic; keys of `configs` have underscores in place of dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dotted(configs))
    admin.create_topics([new])[name].result(WAIT_S)


@pytest.fixture(scope="session")
def tool_jvm() -> Iterator[ToolJvm]:
    """The virtual machine that runs all tools."""
    with ToolJvm(TOOL_JVM) as jvm:
        yield jvm


@pytest.fixture
def java(tool_jvm: ToolJvm) -> Tool:
    """Run a main class of Apache Kafka's jars and give its standard output."""

    def run(main_class: str, *arguments: str, stdin: str = "", expect: int = 0) -> str:
        return checked(tool_jvm.run(main_class, *arguments, stdin=stdin), expect).stdout

    return run


@pytest.fixture
def java_process() -> Tool:
    """Run a main class as its start script does, as a process, and give all that it printed."""

    def run(main_class: str, *arguments: str, expect: int = 0) -> str:
        command = peers.java_command(main_class, *arguments, options=TOOL_JVM)
        return "\n".join(checked(process_output(command), expect)[1:])

    return run


@pytest.fixture
def kcat(bootstrap: str) -> Tool:
    """Run kcat against the server and give its standard output."""

    def run(*arguments: str, stdin: str = "", expect: int = 0) -> str:
        command = [peers.program("kcat"), "-b", bootstrap, "-m", str(WAIT_S), *arguments]
        return run_tool(command, stdin=stdin, expect=expect)

    return run


def run_tool(command: list[str], *, stdin: str = "", expect: int = 0) -> str:
    """Run a program to its end and give its standard output."""
    return checked(process_output(command, stdin), expect).stdout


def process_output(command: list[str], stdin: str = "") -> ToolOutput:
    """Run a program to its end."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    return ToolOutput(done.returncode, done.stdout, done.stderr)


def checked(output: ToolOutput, expect: int) -> ToolOutput:
    """Fail with what a tool said when its status is not the expected one."""
    status, stdout, stderr = output
    assert status == expect, f"status {status}, expected {expect}: {stdout}\n{stderr}"
    return output

"""What holds for every test: settings of hypothesis, none of the machine, no contained fault.

No test may log a secret, either.
"""

import gc
import logging
import os
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.contained import LOGGER, Contained
from tests.shown_secrets import ShownSecrets

if TYPE_CHECKING:
    from tests.postgres_server import PostgresServer

_DATABASES = count(1)

# On a loaded machine an example may take long without being wrong.
settings.register_profile(
    "kledger",
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("all", parent=settings.get_profile("kledger"), max_examples=200)
settings.register_profile("thorough", parent=settings.get_profile("kledger"), max_examples=2_000)
# The same examples in every run, whatever ran before: tests/mutation compares runs.
settings.register_profile(
    "repeatable",
    parent=settings.get_profile("kledger"),
    max_examples=40,
    derandomize=True,
    database=None,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "kledger"))


def pytest_collection_finish() -> None:
    """Keep the collected tests, millions of objects, out of what the garbage collector visits.

    Servers that end ask for a collection, and with them it takes three seconds.
    """
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep settings of the machine's own kledger out of the tests."""
    for variable in [name for name in os.environ if name.startswith("KLEDGER_")]:
        monkeypatch.delenv(variable)


@pytest.fixture(autouse=True)
def _contained_faults() -> Iterator[Contained]:
    """Fail a test in which a fault was contained that it did not cause on purpose."""
    found = Contained()
    logger = logging.getLogger(LOGGER)
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)
    if found.messages and not found.is_expected:
        pytest.fail(f"contained: {found.messages[0]}: {found.errors[0]!r}")


@pytest.fixture(autouse=True)
def _no_secret_is_logged() -> Iterator[ShownSecrets]:
    """Fail a test in which a password or a key went into the log."""
    found = ShownSecrets()
    root = logging.getLogger()
    root.addHandler(found)
    yield found
    root.removeHandler(found)
    assert not found.lines, "a secret was logged"


@pytest.fixture
def contained(_contained_faults: Contained) -> Contained:
    """What was contained so far, in a test that causes faults."""
    _contained_faults.is_expected = True
    return _contained_faults


@pytest.fixture(scope="session")
def postgres_server() -> Iterator["PostgresServer"]:
    """A PostgreSQL for all tests of this process."""
    from tests.postgres_server import PostgresServer

    server = PostgresServer()
    try:
        server.initialise()
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: "PostgresServer") -> str:
    """The URL of an empty database, which ends with its server."""
    name = f"test_{next(_DATABASES)}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    return postgres_server.url(name)

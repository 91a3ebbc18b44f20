"""A schema registry, Apicurio, that keeps everything it knows in a topic.

A restarted one reads the whole topic before it serves. Karapace is not on PyPI, and Confluent's
registry is not on Maven Central.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from compat_tests import programs
from compat_tests.compacted_topics import create_compacted, read_partition
from compat_tests.deadlines import PROGRAM_S, WAIT_S, wait_until
from compat_tests.servers.ports import ReservedPort

pytestmark = [pytest.mark.peer("apicurio-registry"), pytest.mark.slow]

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
Ask: TypeAlias = Callable[..., JsonValue]


@contextmanager
def schema_registry(bootstrap: str, journal: str, log: Path) -> Iterator[Ask]:
    """A registry in front of a topic; gives the function that asks it, when it serves."""
    with ReservedPort() as port, ReservedPort() as management_port:
        environment = {
            "APICURIO_STORAGE_KIND": "kafkasql",
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "APICURIO_KAFKASQL_TOPIC": journal,
            "APICURIO_KAFKASQL_SNAPSHOTS_TOPIC": f"{journal}-snapshots",
            "APICURIO_EVENTS_KAFKA_TOPIC": f"{journal}-events",
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(port.number),
            "QUARKUS_MANAGEMENT_PORT": str(management_port.number),
        }
        with programs.running(programs.registry_command(), log, environment):

            def ask(path: str, body: JsonValue = None, *, method: str | None = None) -> JsonValue:
                request = Request(
                    f"http://127.0.0.1:{port.number}/apis/ccompat/v7/{path}",
                    data=None if body is None else json.dumps(body).encode(),
                    headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
                    method=method,
                )
                with urlopen(request, timeout=WAIT_S) as response:
                    answer: JsonValue = json.load(response)
                    return answer

            def is_serving() -> bool:
                try:
                    ask("subjects")
                except OSError:
                    return False
                return True

            wait_until(is_serving, "the registry serves", within_s=PROGRAM_S)
            yield ask


def record_type(**fields: JsonValue) -> JsonValue:
    """Give an Avro schema as the registry takes it: its fields with their defaults."""
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": each, "type": "string", "default": fields[each]} for each in fields],
    }
    return {"schema": json.dumps(schema), "schemaType": "AVRO"}


QUESTIONS = (
    "subjects",
    "subjects/orders-value/versions",
    *(f"subjects/orders-value/versions/{version}" for version in (1, 2, 3)),
    "config/orders-value",
    "schemas/ids/1",
)


@pytest.mark.feature("registry: versions, compatibility and deletion, found again after a restart")
def test_registry_finds_its_schemas_again(
    compacting_bootstrap: str, group: str, tmp_path: Path
) -> None:
    journal = create_compacted(compacting_bootstrap, f"{group}-journal")
    orders, customers = "subjects/orders-value/versions", "subjects/customers-value/versions"
    with schema_registry(compacting_bootstrap, journal, tmp_path / "log") as ask:
        ask(customers, record_type(id=""))
        for each in (record_type(id=""), record_type(id="", name=""), record_type(name="")):
            ask(orders, each)
        ask("config/orders-value", {"compatibility": "FULL"}, method="PUT")
        with pytest.raises(HTTPError, match="409"):
            ask(orders, {"schema": json.dumps({"type": "int"})})
        ask("subjects/customers-value", method="DELETE")
        answers = {question: ask(question) for question in QUESTIONS}
    assert ["orders-value"] == answers["subjects"]
    assert [1, 2, 3] == answers[orders]
    assert read_partition(compacting_bootstrap, journal), "the schemas are in the topic"
    with schema_registry(compacting_bootstrap, journal, tmp_path / "log") as ask:
        assert answers == {question: ask(question) for question in QUESTIONS}
        ask(orders, record_type(id="", name="", place=""))
        assert [1, 2, 3, 4] == ask(orders)

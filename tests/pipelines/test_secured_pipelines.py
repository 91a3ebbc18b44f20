"""Pipelines get the address of a listener with TLS and logins: all that they do goes there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from compat_tests.servers import KledgerServer
from pipelines import archive, deduplicate, replay, snapshot
from pipelines.errors import PipelineFailed, WrongCall
from tests.pipelines.conftest import SETTINGS
from tests.pipelines.records import create_topic, json_record, parquet_rows, send, topic_records
from tests.security.certificates import authority

pytestmark = pytest.mark.slow

COUNT, KEYS, PARTITIONS = 300, 50, 2
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = f'{MODULE} required username="ann" password="ann-pw";'


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[KledgerServer, dict[str, Any]]]:
    """A server with the topic `orders`, and the options of pipelines that read it."""
    server = authority().issue("server", is_server=True)
    (tmp_path / "server.pem").write_text(server.key + server.certificate)
    (tmp_path / "ca.pem").write_text(authority().pem)
    settings = SETTINGS | {
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} required user_ann="ann-pw";',
    }
    running = KledgerServer(tmp_path / "data", durability="os", settings=settings)
    address = running.listen_as("PLAINTEXT", "SASL_SSL")["SASL_SSL"]
    with running:
        create_topic(running.bootstrap, "orders", partitions=PARTITIONS)
        records = [json_record(number, partitions=PARTITIONS) for number in range(COUNT)]
        send(running.bootstrap, "orders", records)
        security = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": LOGIN,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
        }
        yield running, {"servers": address, "topic": "orders", "option": security}


@pytest.mark.parametrize("source", ["kafka", "kledger"])
def test_topics_are_read_and_written(
    spark: SparkSession,
    secured: tuple[KledgerServer, dict[str, Any]],
    tmp_path: Path,
    source: str,
) -> None:
    server, options = secured
    given = options | {"source": source}
    for copy in ("copy", "once"):
        create_topic(server.bootstrap, copy, partitions=PARTITIONS)
    stream = {"checkpoint": f"{tmp_path}/archived", "available_now": True}
    archive.run(spark, given | stream | {"to": f"{tmp_path}/archive"})
    copied = {"topic": "copy", "from": f"{tmp_path}/archive"}
    kept = {"keep_timestamps": True, "keep_partitions": True}
    assert COUNT == replay.run(spark, given | copied | kept).rows_out
    assert topic_records(server.bootstrap, "orders") == topic_records(server.bootstrap, "copy")
    snapshot.run(spark, given | {"to": f"{tmp_path}/table"})
    assert KEYS == len(parquet_rows(tmp_path / "table"))
    first = {"to": "once", "by": "key", "within": "1 hour", "checkpoint": f"{tmp_path}/once"}
    assert KEYS == deduplicate.run(spark, given | stream | first).rows_out


def test_a_wrong_password_fails_at_once_and_is_not_shown(
    spark: SparkSession, secured: tuple[KledgerServer, dict[str, Any]], tmp_path: Path
) -> None:
    _, options = secured
    wrong = options["option"] | {"kafka.sasl.jaas.config": LOGIN.replace("ann-pw", "other-pw")}
    with pytest.raises(PipelineFailed, match="AUTHENTICATION") as caught:
        snapshot.run(spark, options | {"to": f"{tmp_path}/table", "option": wrong})
    assert "other-pw" not in str(caught.value)


def test_what_our_own_client_cannot_use_is_a_wrong_call(
    spark: SparkSession, secured: tuple[KledgerServer, dict[str, Any]], tmp_path: Path
) -> None:
    _, options = secured
    wrong = options["option"] | {"KAFKA.sasl.mechanism": "GSSAPI"}
    del wrong["kafka.sasl.mechanism"]
    with pytest.raises(WrongCall, match=r"kafka\.sasl\.mechanism: .*GSSAPI"):
        snapshot.run(spark, options | {"to": f"{tmp_path}/table", "option": wrong})

"""The reference gets what a single node on loopback needs, and its own defaults for the rest."""

from pathlib import Path

from compat_tests.servers.apache_kafka import ApacheKafkaServer


def test_ports_are_reserved_and_written_into_the_configuration(tmp_path: Path) -> None:
    server = ApacheKafkaServer(tmp_path, settings={"num.partitions": "3"})
    server.data_folder.mkdir()
    (server.data_folder / "meta.properties").touch()  # formatted already: no Java is started
    server.prepare()
    written = server.properties_file.read_text()
    assert server.port > 0
    assert f"listeners=PLAINTEXT://{server.bootstrap},CONTROLLER://" in written
    assert "CONTROLLER://127.0.0.1:0" not in written
    assert "num.partitions=3" in written
    server.prepare()
    assert written == server.properties_file.read_text()

"""The services of the compose file, run as processes: there is no engine for containers here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its stubs are a package of their own

from compat_tests import programs
from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers import KledgerServer
from compat_tests.servers.s3_servers import S3Server
from tests.pipelines.records import create_topic, json_record, parquet_rows, send
from tests.tidy.sources import ROOT

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())[
    "services"
]
COUNT = 2000


class ComposedObjects(S3Server):
    """The object store of the compose file; a volume below its folder is a bucket."""

    def command(self) -> list[str]:
        """Give what the container's entry point gets, with port and folder replaced."""
        words: list[str] = SERVICES["objects"]["command"]
        for volume in SERVICES["objects"]["volumes"]:
            Path(volume.partition(":")[2].replace("/objects", str(self.data_folder))).mkdir(
                exist_ok=True
            )
        program = programs.built("versitygw") / "built" / "versitygw"
        replaced = {":7070": self.address, "/objects": str(self.data_folder)}
        return [str(program), *(replaced.get(word, word) for word in words)]


def test_image_of_the_object_store_is_what_the_tests_build() -> None:
    pinned = (ROOT / "compat_tests" / "programs" / "versitygw" / "go.mod").read_text()
    version = SERVICES["objects"]["image"].partition(":")[2]
    assert f"github.com/versity/versitygw {version} " in pinned


def test_server_has_no_rights_and_writes_to_its_volume_alone() -> None:
    server = SERVICES["kledger"]
    assert server["read_only"] is True
    assert ["ALL"] == server["cap_drop"]
    assert ["no-new-privileges:true"] == server["security_opt"]
    assert ["kledger-data:/data"] == server["volumes"]


@pytest.mark.slow
def test_services_offload_and_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = ComposedObjects(tmp_path / "objects")
    for service in ("objects", "kledger"):
        for name, value in SERVICES[service]["environment"].items():
            monkeypatch.setenv(name, value.replace("objects:7070", objects.address))
    monkeypatch.delenv("KLEDGER_KAFKA_ADVERTISED_HOST")
    settings = {"log.retention.check.interval.ms": "500"}
    server = KledgerServer(tmp_path / "server", durability="os", settings=settings)
    with objects, server:
        create_topic(server.bootstrap, "flights", partitions=2, internal_segment_bytes="16384")
        records = [json_record(n, partitions=2) for n in range(COUNT)]
        send(server.bootstrap, "flights", records, **{"batch.num.messages": 50})
        wait_until(
            lambda: any(name.endswith("manifest.json") for name in objects.files()),
            "a ledger in the object store",
        )
        archive = SERVICES["archive"]
        words = [each.replace("/out", str(tmp_path)) for each in archive["command"]]
        command = [*archive["entrypoint"][1:], *words]
        done = subprocess.run(
            [sys.executable, *(each.replace("kledger:9092", server.bootstrap) for each in command)],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
            cwd=ROOT,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert COUNT == len(parquet_rows(tmp_path / "archive"))

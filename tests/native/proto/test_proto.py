"""The generated code is what the locked generator makes of the .proto file."""

import subprocess
import sys
from pathlib import Path

import pytest

from kledger.native.proto import kledger_native_pb2 as pb

ROOT = Path(__file__).parents[3]
PROTO = "native/proto/kledger_native.proto"
GENERATED = ("native/proto/kledger_native_pb2.py", "native/proto/kledger_native_pb2.pyi")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate into a folder of its own, as `make proto` does into the tree."""
    folder = tmp_path_factory.mktemp("proto")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", ".",
         f"--python_out={folder}", f"--pyi_out={folder}", PROTO],
        cwd=ROOT,
        check=True,
    )  # fmt: skip
    return folder


@pytest.mark.parametrize("path", GENERATED)
def test_committed_code_is_what_make_proto_writes(fresh: Path, path: str) -> None:
    assert (fresh / path).read_text() == (ROOT / path).read_text(), "run make proto"


def test_make_proto_runs_the_same_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"-m grpc_tools.protoc -I . --python_out=. --pyi_out=. {PROTO}\n" in makefile


def test_links_are_streams_and_everything_else_is_one_answer() -> None:
    service = pb.DESCRIPTOR.services_by_name["Broker"]
    assert "kledger.native.v1.Broker" == service.full_name
    streams = {each.name for each in service.methods if each.client_streaming}
    assert {"Produce", "Consume"} == streams
    assert streams == {each.name for each in service.methods if each.server_streaming}

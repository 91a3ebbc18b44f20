"""The unit for systemd: its command is one of this version, and it is as narrow as it can be."""

import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from kledger.cli import Parser, serve
from tests.tidy.sources import ROOT

UNIT = ROOT / "docker" / "kledger.service"
EXPOSURE_MAX = 2.0
"""Of 10, as `systemd-analyze security` counts; what is left is the network that it serves."""


def service() -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # keeps upper case
    parser.read(UNIT)
    return dict(parser["Service"])


def test_command_is_one_of_this_version() -> None:
    program, noun, *words = service()["ExecStart"].split()
    assert ("kledger", "serve") == (Path(program).name, noun)
    parser = Parser()
    serve.add_arguments(parser)
    arguments = parser.parse_args(words)
    assert "/var/lib/kledger" == arguments.data, "what StateDirectory makes"
    assert Path("/var/lib/kledger/security/kledger.toml") == arguments.config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("User", "kledger"),
        ("StateDirectory", "kledger"),
        ("StateDirectoryMode", "0700"),
        ("UMask", "0077"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("CapabilityBoundingSet", ""),
        ("LimitCORE", "0"),
    ],
)
def test_rights_are_taken_away(name: str, value: str) -> None:
    assert value == service()[name]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_reads_every_line(tmp_path: Path) -> None:
    """A misspelt line would be skipped with a warning, and protect nothing."""
    unit = tmp_path / UNIT.name
    installed = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text())
    unit.write_text(installed)
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert UNIT.name not in done.stderr
    security = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(security, capture_output=True, text=True, check=True).stdout
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= EXPOSURE_MAX

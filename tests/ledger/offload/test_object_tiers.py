"""The factory of offloaders: what it checks, keeps and loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from kledger.ledger.errors import InvalidArgument
from kledger.ledger.offload.object_tiers import ObjectStoreTiers
from tests.ledger.offload.object_words import FIRST, LEDGER, ListSource, numbered


def test_library_is_loaded_by_the_first_offloader() -> None:
    """A server without a tier does not pay for it, and neither does a check of its settings."""
    program = (
        "import sys\n"
        "from kledger.ledger.offload.object_tiers import ObjectStoreTiers\n"
        "tiers = ObjectStoreTiers()\n"
        "tiers.check('s3://bucket')\n"
        "print('obstore' in sys.modules)\n"
        "tiers.from_url('memory://')\n"
        "print('obstore' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "False\nTrue\n" == done.stdout


@pytest.mark.parametrize("call", ["check", "from_url"])
async def test_what_is_not_valid_is_refused(call: str) -> None:
    tiers = ObjectStoreTiers({"reigon": "eu"})
    with pytest.raises(InvalidArgument, match="reigon unknown for s3://"):
        getattr(tiers, call)("s3://bucket")
    with pytest.raises(InvalidArgument, match="cache_bytes: expected at least 0, got -1"):
        ObjectStoreTiers(cache_bytes=-1)
    await tiers.close()


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
async def test_disk_cache_is_one_for_all_offloaders(tmp_path: Path, cache_bytes: int) -> None:
    """It is not made before something is read."""
    folder = tmp_path / "cache"
    tiers = ObjectStoreTiers(cache_folder=folder, cache_bytes=cache_bytes)
    offloader = tiers.from_url(f"file://{tmp_path}/tier")
    await offloader.offload(ListSource(numbered(3)), FIRST, offloader.location)
    assert not folder.exists()
    for each in (offloader, tiers.from_location(offloader.name, offloader.location)):
        assert each is not None
        ledger = await each.open(LEDGER, FIRST, each.location)
        assert numbered(3) == await ledger.read(0, end=3, bytes_max=1000)
    assert bool(cache_bytes) == folder.exists()
    await tiers.close()
    await tiers.close()

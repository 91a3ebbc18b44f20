"""The offloader over Azure Blob Storage, as Microsoft's emulator speaks it."""

import base64
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from compat_tests.servers.s3_servers import Azurite
from kledger.ledger.errors import NonRecoverable, TierUnavailable
from kledger.ledger.offload.object_offloader import ObjectStoreOffloader
from kledger.ledger.offload.object_tiers import ObjectStoreTiers
from kledger.ledger.offload.offloader import TieredLedger
from tests.ledger.offload.object_words import FIRST, LEDGER, SECOND, ListSource, numbered

MIB = 1 << 20
FEW = [bytes(each) for each in numbered(300, 1000)]
MANY = [bytes([number]) * (1 << 18) for number in range(95)]
"""Three parts of an upload."""
_containers = count(1)

pytestmark = pytest.mark.slow  # the emulator is installed with npm


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def container(azurite: Azurite) -> str:
    name = f"container-{next(_containers)}"
    azurite.make_container(name)
    return name


@pytest.fixture
async def offloader(azurite: Azurite, container: str) -> AsyncIterator[ObjectStoreOffloader]:
    tiers = ObjectStoreTiers({**azurite.options, "max_retries": 1})
    yield tiers.from_url(f"az://{container}/some/prefix").below("public/default/orders-x/0")
    await tiers.close()


async def read_all(ledger: TieredLedger) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < ledger.entries:
        found += map(bytes, await ledger.read(len(found), end=ledger.entries, bytes_max=3 * MIB))
    return found


@pytest.mark.parametrize("entries", [FEW, MANY], ids=["few", "many"])
async def test_ledger_is_copied_read_and_deleted_in_azure(
    offloader: ObjectStoreOffloader, entries: list[bytes]
) -> None:
    for attempt in (FIRST, SECOND):
        await offloader.offload(ListSource(entries), attempt, offloader.location)
    ledger = await offloader.open(LEDGER, FIRST, offloader.location)
    assert entries == await read_all(ledger)
    assert entries[7:8] == await ledger.read(7, end=8, bytes_max=1)
    for attempt in (FIRST, SECOND):
        await offloader.delete(LEDGER, attempt, offloader.location)
        await offloader.abort_uploads(LEDGER, attempt, offloader.location)
    with pytest.raises(NonRecoverable):
        await offloader.open(LEDGER, SECOND, offloader.location)
    assert [] == await offloader.stored()


async def test_manifest_is_replaced_in_azure(offloader: ObjectStoreOffloader) -> None:
    assert None is await offloader.get_whole("manifest.json")
    for content in (b'{"version": 1}', b"{}"):
        await offloader.put_whole("manifest.json", content)
        assert content == await offloader.get_whole("manifest.json")
    for _ in range(2):
        await offloader.delete_whole("manifest.json")
    assert [] == await offloader.stored()


async def test_keys_of_nobody_are_refused_by_azure(azurite: Azurite, container: str) -> None:
    wrong = base64.b64encode(b"the key of nobody").decode()
    tiers = ObjectStoreTiers({**azurite.options, "account_key": wrong, "max_retries": 0})
    offloader = tiers.from_url(f"az://{container}")
    with pytest.raises(TierUnavailable, match="403") as raised:
        await offloader.offload(ListSource(FEW), FIRST, offloader.location)
    assert wrong not in str(raised.value)
    await tiers.close()

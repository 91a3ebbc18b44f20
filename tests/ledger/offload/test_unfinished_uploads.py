"""Options of the second library, and when it is asked; test_s3_servers has it over servers."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from botocore import UNSIGNED

from kledger.ledger import LedgerStore, TierUnavailable, UploadingOffloader
from kledger.ledger.offload.unfinished_uploads import (
    DEFAULT_REGION,
    UnfinishedUploads,
    client_arguments,
)
from kledger.ledger.testing import FaultyEngine, ManualClock, MemoryTier, MemoryTiers
from tests.ledger.offload.words import COLD_STORE, five, offload_all, pending, until
from tests.ledger.words import OpenStore

ENDPOINT = "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ({}, {}, {"region_name": DEFAULT_REGION}),
        ({"endpoint": ENDPOINT}, {}, {"endpoint_url": ENDPOINT}),
        ({}, {"AWS_ENDPOINT": ENDPOINT}, {"endpoint_url": ENDPOINT}),
        (
            {"endpoint": "https://bucket.store:9/", "virtual_hosted_style_request": True},
            {},
            {"endpoint_url": "https://store:9/"},
        ),
        ({"region": "eu-west-1"}, {"AWS_REGION": "eu-west-2"}, {"region_name": "eu-west-1"}),
        ({}, {"AWS_DEFAULT_REGION": "eu-west-2"}, {"region_name": "eu-west-2"}),
        (
            {"access_key_id": "a", "secret_access_key": "b", "session_token": "c"},
            {},
            {
                "aws_access_key_id": "a",
                "aws_secret_access_key": "b",
                "aws_session_token": "c",
            },
        ),
        ({"allow_invalid_certificates": "true"}, {}, {"verify": False}),
    ],
)
def test_options_lead_to_the_same_store(
    options: Mapping[str, object], environment: Mapping[str, str], expected: Mapping[str, object]
) -> None:
    arguments = client_arguments("bucket", options, environment)
    assert expected == {name: arguments.get(name) for name in expected}


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({"skip_signature": True}, "signature_version", UNSIGNED),
        ({"endpoint": ENDPOINT}, "s3", {"addressing_style": "path"}),
        (
            {"endpoint": ENDPOINT, "virtual_hosted_style_request": "true"},
            "s3",
            {"addressing_style": "virtual"},
        ),
        ({"proxy_url": "http://p"}, "proxies", {"http": "http://p", "https": "http://p"}),
    ],
)
def test_options_of_the_connection(
    options: Mapping[str, object], name: str, expected: object
) -> None:
    config: Any = client_arguments("bucket", options, {})["config"]
    assert expected == getattr(config, name)


async def test_a_server_that_is_down_is_unavailable() -> None:
    uploads = UnfinishedUploads(
        "s3://bucket/prefix",
        {"endpoint": "http://127.0.0.1:1", "access_key_id": "a", "secret_access_key": "secret-key"},
    )
    with pytest.raises(TierUnavailable, match="unfinished uploads in s3://bucket/prefix") as raised:
        await uploads.abort("name")
    uploads.close()
    assert "secret-key" not in str(raised.value)


def test_the_library_is_loaded_when_it_is_needed() -> None:
    """A server that never needs it does not pay its memory."""
    program = (
        "import sys; from kledger.ledger import ObjectStoreTiers; "
        "ObjectStoreTiers({'region': 'r'}).from_url('s3://bucket'); "
        "print('obstore' in sys.modules, 'botocore' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "True False" == done.stdout.strip()


class UploadingTier(MemoryTier):
    """Notes the attempts whose uploads were ended."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted: list[UUID] = []
        self.error: TierUnavailable | None = None

    async def abort_uploads(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.aborted.append(attempt)


@pytest.fixture
async def tier() -> UploadingTier:
    return UploadingTier()


@pytest.fixture
async def store(open_store: OpenStore, engine: FaultyEngine, tier: UploadingTier) -> LedgerStore:
    return await open_store(engine=engine, config=COLD_STORE, offloaders=MemoryTiers(tier))


async def test_uploads_of_a_broken_attempt_are_ended_until_the_tier_confirms_it(
    store: LedgerStore, tier: UploadingTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    """And once more later, as what a killed process has sent may arrive after that."""
    assert isinstance(tier, UploadingOffloader)
    ml = await five(store, tier)
    hold = tier.hold_next("offload")
    copying = asyncio.ensure_future(offload_all(ml))
    await hold.reached()
    offload = ml.ledgers[0].offload
    assert offload is not None
    tier.error = TierUnavailable("not now")
    copying.cancel()
    await until(clock, lambda: pending(engine) == 0)
    assert [offload.attempt] * 2 == tier.aborted


async def test_a_complete_copy_has_no_uploads_to_end(
    store: LedgerStore, tier: UploadingTier, engine: FaultyEngine, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    await offload_all(ml)
    await ml.truncate()
    await until(clock, lambda: pending(engine) == 0 and not tier.copies)
    assert [] == tier.aborted

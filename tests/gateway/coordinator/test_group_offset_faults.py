"""A fault in deleting a group or its offsets closes that group; the request is answered."""

import pytest

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import OffsetStore
from tests.contained import Contained
from tests.gateway.coordinator.groups.test_group_offsets import MINUTE_MS, SHORT, T0
from tests.gateway.coordinator.shell_words import at, coordinator


def fail_once(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Let the next call raise."""
    original = getattr(owner, name)

    def fails(*_: object, **__: object) -> None:
        patch.setattr(owner, name, original)
        raise RuntimeError("injected")

    patch.setattr(owner, name, fails)


async def test_deletion_of_a_group_that_fails_is_answered_and_the_group_stays() -> None:
    """The group was removed from memory, and its row stayed."""
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        await bench.commit(T0, at(1))
        engine.fail_next("commit")
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [unavailable] == await bench.groups.offsets.delete_groups(["g"])
        assert (True, at(1)) == (
            bench.groups.describe("g") is not None,
            bench.groups.offsets.committed("g", T0),
        )
        assert [ErrorCode.NONE] == await bench.groups.offsets.delete_groups(["g"])
        assert bench.groups.describe("g") is None


async def test_group_that_fails_in_expiry_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator(SHORT) as bench:
        for group_id in ("g", "h"):
            await bench.commit(T0, at(1), group=group_id)
        fail_once(monkeypatch, OffsetStore, "expired")
        await bench.advance(MINUTE_MS)
        await bench.written()
        offsets = bench.groups.offsets
        left = [each for each in ("g", "h") if offsets.committed(each, T0) is not None]
        assert (["g"], ["a fault here closes group g"]) == (left, contained.messages)

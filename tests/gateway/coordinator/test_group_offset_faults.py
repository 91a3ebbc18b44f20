"""A fault in deleting a group or its offsets closes that group; the request is answered."""

import pytest

from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.groups.group_table import GroupTable
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import OffsetsState
from tests.contained import Contained
from tests.gateway.coordinator.groups.test_group_offsets import MINUTE_MS, SHORT, T0
from tests.gateway.coordinator.shell_words import at, coordinator, settle


def fail_once(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Let the next call raise."""
    original = getattr(owner, name)

    def fails(*_: object, **__: object) -> None:
        patch.setattr(owner, name, original)
        raise RuntimeError("injected")

    patch.setattr(owner, name, fails)


async def test_deletion_of_a_group_that_fails_is_answered_and_the_group_stays(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The group was removed from memory, and its row stayed."""
    async with coordinator() as bench:
        await bench.commit(T0, at(1))
        fail_once(monkeypatch, ClassicGroup, "kill")
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [unavailable] == await bench.groups.offsets.delete_groups(["g"])
        assert ["a fault here closes group g"] == contained.messages
        assert (True, at(1)) == (
            bench.groups.describe("g") is not None,
            bench.groups.offsets.committed("g", T0),
        )
        assert [ErrorCode.NONE] == await bench.groups.offsets.delete_groups(["g"])


async def test_deletion_is_answered_even_if_its_restoration_fails(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The request waited for ever."""
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        await bench.commit(T0, at(1))
        hold = engine.hold_next("commit")
        fail_once(monkeypatch, GroupTable, "restore")
        deletion = await bench.start(bench.groups.offsets.delete_groups(["g"]))
        await hold.reached()
        hold.fail()
        await bench.store.flush()
        await settle()
        assert deletion.done()
        assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] == await deletion
    assert ["a fault here closes group g"] == contained.messages


async def test_group_that_fails_in_expiry_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator(SHORT) as bench:
        for group_id in ("g", "h"):
            await bench.commit(T0, at(1), group=group_id)
        fail_once(monkeypatch, OffsetsState, "expired")
        await bench.advance(MINUTE_MS)
        await bench.written()
        offsets = bench.groups.offsets
        left = [each for each in ("g", "h") if offsets.committed(each, T0) is not None]
        assert (["g"], ["a fault here closes group g"]) == (left, contained.messages)

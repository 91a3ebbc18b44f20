"""The public methods of a managed ledger that concern cursors."""

import inspect

from kledger.ledger import LATEST, ManagedLedger


def test_the_face_has_these_names() -> None:
    opening = inspect.signature(ManagedLedger.open_cursor).parameters
    assert ["self", "name", "initial"] == list(opening)
    assert (LATEST, inspect.Parameter.KEYWORD_ONLY) == (
        opening["initial"].default,
        opening["initial"].kind,
    )
    for name in ("open_cursor", "open_cursor_at", "new_non_durable_cursor", "delete_cursor"):
        assert inspect.iscoroutinefunction(getattr(ManagedLedger, name))
    assert isinstance(inspect.getattr_static(ManagedLedger, "cursors"), property)


async def test_cursors_are_created_and_deleted_without_being_opened(ml: ManagedLedger) -> None:
    await ml.add_entry(b"before")
    stays = await ml.open_cursor("stays")
    await ml.open_cursor("goes")
    assert {"stays", "goes"} == ml.cursor_names
    await ml.change_cursors(added=["new", "stays"], removed=["goes", "never"])
    assert {"stays", "new"} == ml.cursor_names
    assert (stays, 1, 0) == (ml.cursors["stays"], ml.cursors["new"].backlog, stays.backlog)


async def test_each_call_reaches_the_registry(ml: ManagedLedger) -> None:
    cursor = await ml.open_cursor("c")
    assert {"c": cursor} == dict(ml.cursors)
    assert not (await ml.new_non_durable_cursor()).is_durable
    assert cursor is await ml.open_cursor_at("c", LATEST)
    await ml.delete_cursor("c")
    assert {} == dict(ml.cursors)

"""The controller of PIP-269: what it returns, and that all four values change together."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kledger.ledger import Position
from kledger.ledger.cursors.cursor_revision_state import CursorStateRevisionController
from tests.ledger.words import pos

START, DELETED = pos("3:5"), pos("3:1")
NOWHERE = pos("99:0")


@dataclass
class Places:
    read_position: Position = START
    mark_delete_position: Position = DELETED
    revisions: list[tuple[Position, Position]] = field(default_factory=list)

    def revised(self) -> None:
        if self.mark_delete_position == NOWHERE:
            raise ValueError("nothing can follow that position")
        self.revisions.append((self.read_position, self.mark_delete_position))

    def checkpoint(self) -> Callable[[], None]:
        before = self.read_position, self.mark_delete_position

        def set_back() -> None:
            self.read_position, self.mark_delete_position = before

        return set_back


@pytest.fixture
def state() -> Places:
    return Places()


@pytest.fixture
def controller(state: Places) -> CursorStateRevisionController[Places]:
    return CursorStateRevisionController(state)


def test_a_revision_sets_both_positions_and_counts(
    controller: CursorStateRevisionController[Places], state: Places
) -> None:
    assert (0, False) == (controller.number, controller.is_running)
    assert 0 == controller.start()
    assert (0, True) == (controller.number, controller.is_running)
    assert 1 == controller.end(lambda each: setattr(each, "read_position", pos("1:0")))
    assert (1, False) == (controller.number, controller.is_running)
    assert [(pos("1:0"), pos("3:1"))] == state.revisions
    assert 1 == controller.start()


def test_one_revision_at_a_time(controller: CursorStateRevisionController[Places]) -> None:
    controller.start()
    assert -1 == controller.start()
    assert controller.is_running
    assert 1 == controller.end(lambda _: None)
    assert 1 == controller.start()


def test_an_end_without_a_start_edits_nothing(
    controller: CursorStateRevisionController[Places], state: Places
) -> None:
    def edit(_: Places) -> None:
        raise AssertionError("edited")

    assert -1 == controller.end(edit)
    assert (0, [], pos("3:5")) == (controller.number, state.revisions, state.read_position)


def test_a_number_is_outdated_while_a_revision_runs_and_when_it_has_changed(
    controller: CursorStateRevisionController[Places],
) -> None:
    """The comment of the proposal says the opposite of its example; the example is right."""
    number = controller.number
    assert not controller.is_outdated(number)
    controller.start()
    assert controller.is_outdated(number)
    assert controller.is_outdated(controller.number)
    controller.end(lambda _: None)
    assert controller.is_outdated(number)
    assert not controller.is_outdated(controller.number)


def test_an_editor_that_raises_has_set_nothing_and_the_revision_is_over(
    controller: CursorStateRevisionController[Places], state: Places
) -> None:
    def edit(each: Places) -> None:
        each.read_position = pos("9:9")
        each.mark_delete_position = pos("9:8")
        raise KeyError("oh")

    number = controller.start()
    with pytest.raises(KeyError):
        controller.end(edit)
    assert (pos("3:5"), pos("3:1")) == (state.read_position, state.mark_delete_position)
    assert not controller.is_running
    assert controller.is_outdated(number)
    assert 1 == controller.start()


def test_positions_that_cannot_be_followed_are_not_set(
    controller: CursorStateRevisionController[Places], state: Places
) -> None:
    controller.start()
    with pytest.raises(ValueError, match="follow"):
        controller.end(lambda each: setattr(each, "mark_delete_position", NOWHERE))
    assert (pos("3:5"), pos("3:1")) == (state.read_position, state.mark_delete_position)
    assert (1, False) == (controller.number, controller.is_running)

"""The decisions of a forwarder, event by event; random ones are in `test_forwarder_machine`."""

from kledger.native.forwarder.forwarder_state import (
    Effect,
    ForwarderState,
    ForwardLimits,
    MarkDelete,
    Phase,
    Prepare,
    Read,
    Rewind,
    Send,
)
from tests.native.forwarder.builders import FINAL, LIMITS, RETRIED, at, source_entry


class Player:
    """A state and its pending effects, whose outcomes the test reports."""

    def __init__(self, limits: ForwardLimits = LIMITS) -> None:
        self.state = ForwarderState(limits)
        self.now_ms = 0
        self.number = 0

    def decide(self) -> list[Effect]:
        return self.state.decide(self.now_ms, sends_in_flight_max=2)

    def rewound(self) -> list[Effect]:
        self.number += 1
        self.state.rewound(self.number)
        return self.decide()

    def read(self, *numbers: int) -> list[Effect]:
        self.state.read(self.number, [source_entry(number) for number in numbers])
        return self.decide()

    def prepared(self, *numbers: int) -> list[Effect]:
        for number in numbers:
            self.state.prepared(self.number, at(number), source_entry(number).data)
        return self.decide()

    def confirmed(self, number: int) -> list[Effect]:
        self.state.confirmed(self.number, at(number))
        return self.decide()

    def marked(self, number: int) -> list[Effect]:
        self.state.marked(self.number, at(number))
        return self.decide()


def started(limits: ForwardLimits = LIMITS) -> Player:
    player = Player(limits)
    assert [Rewind()] == player.decide()
    assert [] == player.decide()
    assert [Read(1, min(3, limits.entries_in_flight_max), 50)] == player.rewound()
    return player


def send(number: int, revision: int = 1) -> Send:
    return Send(revision, at(number), source_entry(number).data)


def test_an_entry_is_prepared_sent_and_acknowledged() -> None:
    player = started()
    assert [Prepare(1, source_entry(0)), Read(1, 3, 49)] == player.read(0)
    assert [send(0)] == player.prepared(0)
    assert 1 == player.state.in_flight
    assert [MarkDelete(1, source_entry(0))] == player.confirmed(0)
    assert [] == player.marked(0)
    assert (0, at(0), 1) == (
        player.state.in_flight, player.state.marked_upto, player.state.forwarded_count,
    )  # fmt: skip


def test_an_entry_prepared_early_waits_for_earlier_ones() -> None:
    player = started()
    player.read(0, 1, 2)
    assert [] == player.prepared(1)
    assert [] == player.prepared(2)
    assert [send(0), send(1)] == player.prepared(0)
    assert [MarkDelete(1, source_entry(0)), send(2)] == sorted(player.confirmed(0), key=repr)


def test_confirmations_out_of_order_acknowledge_without_a_gap() -> None:
    """The confirmation of the second implies the first, although its answer comes later."""
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    assert MarkDelete(1, source_entry(1)) in player.confirmed(1)
    assert [] == player.confirmed(0)


def test_only_the_newest_confirmed_entry_is_acknowledged() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0, 1, 2)
    assert MarkDelete(1, source_entry(0)) in player.confirmed(0)
    player.confirmed(1)
    player.confirmed(2)
    assert [MarkDelete(1, source_entry(2))] == player.marked(0)


def test_entries_without_a_batch_are_acknowledged_in_order() -> None:
    player = started()
    player.read(0, 1)
    player.state.prepared(1, at(1), None)
    assert [] == player.decide()
    assert [send(0)] == player.prepared(0)
    assert MarkDelete(1, source_entry(1)) in player.confirmed(0)


def test_limits_stop_the_reading_and_confirmations_let_it_go_on() -> None:
    player = started()
    assert Read(1, 2, 47) in player.read(0, 1, 2)
    effects = player.read(3, 4)
    assert [Prepare(1, source_entry(3)), Prepare(1, source_entry(4))] == effects
    player.prepared(0)
    assert Read(1, 1, 46) in player.confirmed(0)


def test_bytes_stop_the_reading_too() -> None:
    player = started()
    player.state.read(1, [source_entry(0, size=50)])
    assert [Prepare(1, source_entry(0, size=50))] == player.decide()


def test_a_failed_preparation_drops_later_entries_and_rewinds_once() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0)
    player.state.prepare_failed(1, at(1), RETRIED)
    assert [] == player.decide()
    player.state.prepare_failed(1, at(2), RETRIED)
    assert [] == player.prepared(2)
    assert Phase.SETTLING is player.state.phase
    assert [MarkDelete(1, source_entry(0))] == player.confirmed(0)
    assert [] == player.marked(0)
    assert (Phase.WAITING, 100) == (player.state.phase, player.state.retry_at_ms)
    player.now_ms = 100
    assert [Rewind()] == player.decide()
    assert [Read(2, 3, 50)] == player.rewound()


def test_forwarded_and_unacknowledged_entries_are_not_resent() -> None:
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.confirmed(0)
    player.state.mark_failed(1, RETRIED)
    assert [] == player.decide()
    assert [MarkDelete(1, source_entry(1))] == player.confirmed(1)
    player.state.mark_failed(1, RETRIED)
    player.decide()
    assert Phase.WAITING is player.state.phase
    player.now_ms = player.state.retry_at_ms
    assert [Rewind()] == player.decide()
    player.rewound()
    assert [Prepare(2, source_entry(2)), MarkDelete(2, source_entry(1))] == [
        effect for effect in player.read(0, 1, 2) if not isinstance(effect, Read)
    ]


def test_entries_behind_a_reset_are_sent_again() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0, 1, 2)
    player.confirmed(0)
    player.state.outdated()
    assert [] == player.decide()
    assert [] == player.confirmed(1)
    # Nothing failed: no back-off.
    assert [Rewind()] == player.confirmed(2)
    player.rewound()
    effects = player.read(0, 1)
    assert {Prepare(2, source_entry(0)), Prepare(2, source_entry(1))} <= set(effects)


def test_results_of_an_older_revision_are_dropped() -> None:
    player = started()
    player.read(0)
    player.state.outdated()
    assert [Rewind()] == player.decide()
    player.rewound()
    state = player.state
    state.read(1, [source_entry(5)])
    state.prepared(1, at(0), b"old")
    state.prepare_failed(1, at(0), FINAL)
    state.read_failed(1, FINAL)
    state.mark_failed(1, FINAL)
    state.ended(1)
    assert [] == player.decide()
    assert (Phase.RUNNING, 0) == (state.phase, state.in_flight)
    assert Prepare(2, source_entry(0)) in player.read(0)
    state.prepared(1, at(0), b"old")
    assert [] == player.decide()
    assert [send(0, revision=2)] == player.prepared(0)


def test_back_off_doubles_up_to_its_limit_and_begins_anew_with_a_success() -> None:
    player = started()
    delays = []
    for attempt in range(5):
        if attempt:
            player.rewound()
        player.read(0)
        player.state.prepare_failed(player.number, at(0), RETRIED)
        player.decide()
        delays.append(player.state.retry_at_ms - player.now_ms)
        player.now_ms = player.state.retry_at_ms
        assert [Rewind()] == player.decide()
    assert [100, 200, 400, 500, 500] == delays
    player.rewound()
    player.read(0, 1)
    player.prepared(0)
    player.confirmed(0)
    player.marked(0)
    player.state.prepare_failed(player.number, at(1), RETRIED)
    player.decide()
    assert 100 == player.state.retry_at_ms - player.now_ms


def test_of_several_failures_the_first_in_order_decides() -> None:
    """The others follow from it: whatever is sent behind a batch that was refused is refused."""
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.state.send_failed(1, at(1), RETRIED)
    player.decide()
    player.state.send_failed(1, at(0), FINAL)
    player.decide()
    assert (Phase.FINISHED, FINAL.error) == (player.state.phase, player.state.error)


def test_a_confirmation_behind_a_failure_acknowledges_nothing() -> None:
    """It happens only if the answer to the first was lost; then it may be sent twice."""
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.state.send_failed(1, at(0), RETRIED)
    assert [] == player.confirmed(1)
    player.now_ms = player.state.retry_at_ms
    assert [Rewind()] == player.decide()
    player.rewound()
    assert {Prepare(2, source_entry(0)), Prepare(2, source_entry(1))} <= set(player.read(0, 1))


def test_a_final_failure_behind_one_that_is_not_is_tried_again() -> None:
    player = started()
    player.read(0, 1)
    player.prepared(0, 1)
    player.state.send_failed(1, at(1), FINAL)
    player.state.send_failed(1, at(0), RETRIED)
    player.decide()
    assert (Phase.WAITING, None) == (player.state.phase, player.state.error)


def test_a_rewind_that_fails_is_tried_again() -> None:
    player = Player()
    player.decide()
    player.state.rewind_failed(RETRIED)
    assert [] == player.decide()
    player.now_ms = 100
    assert [Rewind()] == player.decide()


def test_close_acknowledges_sent_entries_and_begins_nothing() -> None:
    player = started()
    player.read(0, 1, 2)
    player.prepared(0)
    player.state.close()
    assert [] == player.decide()
    assert [MarkDelete(1, source_entry(0))] == player.confirmed(0)
    assert Phase.RUNNING is player.state.phase
    player.marked(0)
    assert (Phase.FINISHED, None) == (player.state.phase, player.state.error)


def test_close_ends_a_back_off_and_a_rewind() -> None:
    player = started()
    player.state.read_failed(1, RETRIED)
    player.decide()
    player.state.close()
    assert Phase.FINISHED is player.state.phase
    player = Player()
    assert [Rewind()] == player.decide()
    player.state.close()
    assert [] == player.decide()
    assert Phase.FINISHED is player.state.phase


def test_the_end_of_the_source_is_the_end_when_everything_is_acknowledged() -> None:
    player = started()
    player.read(0)
    player.state.ended(1)
    assert [send(0)] == player.prepared(0)
    player.confirmed(0)
    assert Phase.RUNNING is player.state.phase
    player.marked(0)
    assert (Phase.FINISHED, None) == (player.state.phase, player.state.error)

"""Which questions go into which request, and whose answers are kept."""

from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kledger.gateway.peers import question_queue_state
from kledger.gateway.peers.question_queue_state import QuestionQueue

Queue = QuestionQueue[str, int, str]


def answers() -> "count[int]":
    """Return a source of objects that take answers; each is another number."""
    return count(1)


def make(*, is_joined: bool) -> tuple[Queue, "count[int]"]:
    return Queue(is_joined=is_joined), answers()


@pytest.mark.parametrize("is_joined", [True, False])
def test_a_question_that_waits_is_asked_once_for_all(is_joined: bool) -> None:
    queue, made = make(is_joined=is_joined)
    assert [1, 1, 2] == [queue.ask(each, made.__next__) for each in "aab"]
    assert {"a": 1, "b": 2} == queue.begin_request()
    assert 0 == queue.waiting_count


@pytest.mark.parametrize(("is_joined", "expected"), [(True, 1), (False, 2)])
def test_a_question_under_way_is_joined_or_asked_again(is_joined: bool, expected: int) -> None:
    queue, made = make(is_joined=is_joined)
    queue.ask("a", made.__next__)
    queue.begin_request()
    assert expected == queue.ask("a", made.__next__)
    assert expected - 1 == queue.waiting_count
    queue.end_request({})
    assert ({"a": 2} if expected == 2 else {}) == queue.begin_request()


def test_questions_beyond_the_limit_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_queue_state, "WAITING_MAX", 2)
    queue, made = make(is_joined=True)
    assert [1, 2, None] == [queue.ask(each, made.__next__) for each in "abc"]
    assert 1 == queue.ask("a", made.__next__)
    queue.begin_request()
    assert 3 == queue.ask("c", made.__next__)


def test_a_request_has_a_limited_number_of_questions_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_queue_state, "REQUEST_MAX", 2)
    queue, made = make(is_joined=True)
    for each in "cab":
        queue.ask(each, made.__next__)
    assert ["c", "a"] == list(queue.begin_request())
    queue.end_request({})
    assert ["b"] == list(queue.begin_request())


def test_an_answer_that_nobody_waits_for_is_kept_once() -> None:
    queue, made = make(is_joined=True)
    queue.ask("a", made.__next__)
    queue.ask("b", made.__next__)
    queue.begin_request()
    queue.abandon("a")
    queue.end_request({"a": "yes", "b": "yes"})
    assert ["yes", None, None] == [queue.take_kept(each) for each in "aab"]


def test_an_answer_for_which_somebody_waits_again_is_not_kept() -> None:
    """A kept answer is taken by the next question, which may be about another transaction."""
    queue, made = make(is_joined=True)
    queue.ask("a", made.__next__)
    queue.begin_request()
    queue.abandon("a")
    assert 1 == queue.ask("a", made.__next__)
    queue.end_request({"a": "yes"})
    assert None is queue.take_kept("a")


def test_an_abandoned_question_that_waits_keeps_the_answer_of_its_own_request() -> None:
    queue, made = make(is_joined=True)
    queue.ask("a", made.__next__)
    queue.begin_request()
    queue.ask("b", made.__next__)
    queue.abandon("b")
    queue.end_request({"a": "yes"})
    assert {"b": 2} == queue.begin_request()
    queue.end_request({"b": "no"})
    assert "no" == queue.take_kept("b")


def test_what_failed_is_not_kept_and_no_longer_abandoned() -> None:
    queue, made = make(is_joined=True)
    queue.ask("a", made.__next__)
    queue.begin_request()
    queue.abandon("a")
    queue.end_request({})
    assert 2 == queue.ask("a", made.__next__)
    queue.begin_request()
    queue.end_request({"a": "yes"})
    assert 0 == queue.kept_count


def test_answers_of_questions_that_may_be_asked_twice_are_never_kept() -> None:
    queue, made = make(is_joined=False)
    queue.ask("a", made.__next__)
    queue.begin_request()
    queue.abandon("a")
    queue.end_request({"a": "yes"})
    assert (0, None) == (queue.kept_count, queue.take_kept("a"))


def test_abandoning_what_nobody_asks_changes_nothing() -> None:
    queue, made = make(is_joined=True)
    queue.abandon("a")
    queue.ask("a", made.__next__)
    queue.begin_request()
    queue.end_request({"a": "yes"})
    assert 0 == queue.kept_count


def test_the_oldest_kept_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question_queue_state, "KEPT_MAX", 2)
    queue, made = make(is_joined=True)
    for each in "abc":
        queue.ask(each, made.__next__)
        queue.begin_request()
        queue.abandon(each)
        queue.end_request({each: f"of {each}"})
    assert [None, "of b", "of c"] == [queue.take_kept(each) for each in "abc"]


class QueueMachine(RuleBasedStateMachine):
    """Askers that come and go while requests begin and end.

    An asker has the number that takes its answer; the model notes for each question which asker
    waits, which one has gone, and which answers must have been kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(is_joined=True)
        self.made = answers()
        self.answer_of: dict[str, int] = {}
        self.gone: set[str] = set()
        self.under_way: set[str] = set()
        self.kept: set[str] = set()

    questions = st.sampled_from("abcd")

    @rule(question=questions)
    def ask(self, question: str) -> None:
        kept = self.queue.take_kept(question)
        assert (kept is not None) == (question in self.kept)
        self.kept.discard(question)
        if kept is not None:
            return
        answer = self.queue.ask(question, self.made.__next__)
        assert answer is not None
        assert answer == self.answer_of.setdefault(question, answer), "asked twice at one time"
        self.gone.discard(question)

    @rule(question=questions)
    def go(self, question: str) -> None:
        self.queue.abandon(question)
        if question in self.answer_of:
            self.gone.add(question)

    @precondition(lambda self: not self.under_way and self.answer_of)
    @rule()
    def begin(self) -> None:
        begun = self.queue.begin_request()
        assert self.answer_of == begun
        self.under_way = set(begun)

    @precondition(lambda self: self.under_way)
    @rule(is_answered=st.booleans())
    def end(self, is_answered: bool) -> None:
        self.queue.end_request(dict.fromkeys(self.under_way, "yes") if is_answered else {})
        if is_answered:
            self.kept |= self.under_way & self.gone
        for question in self.under_way:
            del self.answer_of[question]
        self.gone -= self.under_way
        self.under_way = set()

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.answer_of) - len(self.under_way) == self.queue.waiting_count
        assert len(self.kept) == self.queue.kept_count


TestQueueMachine = QueueMachine.TestCase

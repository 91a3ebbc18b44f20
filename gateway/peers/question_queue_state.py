"""Question queue: the questions to one peer, which are sent in one request at a time.

Rule: pure. Questions that arrive while a request is in flight go together in the next one. Equal
questions that are still queued are sent once. A question equal to one in flight is sent again,
because the peer may have answered the first one from an older state. With `is_joined`, where a
second copy would do harm, its caller waits for the one in flight instead, and an answer whose
caller has stopped waiting is kept for the next equal question.
Must not know: requests, futures, what a question means.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

WAITING_MAX: Final = 100_000
"""Questions that wait for the request in flight; more are not accepted."""
REQUEST_MAX: Final = 10_000
"""Questions of one request."""
KEPT_MAX: Final = 100_000
"""Answers that no caller waited for; the oldest are dropped, and their questions sent again."""

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")
C = TypeVar("C")


class QuestionQueue(Generic[Q, A, C]):
    """The questions to one peer, with what takes the answer to each, and answers that are kept."""

    __slots__ = ("_abandoned", "_in_flight", "_is_joined", "_kept", "_waiting")

    def __init__(self, *, is_joined: bool) -> None:
        """Args: is_joined: a question is never sent again while it is in flight."""
        self._is_joined = is_joined
        self._waiting: dict[Q, A] = {}
        self._in_flight: dict[Q, A] = {}
        self._abandoned: set[Q] = set()
        """Questions whose callers have stopped waiting."""
        self._kept: dict[Q, C] = {}

    @property
    def waiting_count(self) -> int:
        """How many questions wait for the next request."""
        return len(self._waiting)

    @property
    def kept_count(self) -> int:
        """How many answers are kept."""
        return len(self._kept)

    def take_kept(self, question: Q) -> C | None:
        """Return, once, an answer that no caller waited for; None: there is none."""
        return self._kept.pop(question, None) if self._kept else None

    def ask(self, question: Q, make_answer: Callable[[], A]) -> A | None:
        """Return what takes the answer to a question; None: too many wait."""
        self._abandoned.discard(question)
        if self._is_joined and question in self._in_flight:
            return self._in_flight[question]
        answer = self._waiting.get(question)
        if answer is None and len(self._waiting) < WAITING_MAX:
            answer = self._waiting[question] = make_answer()
        return answer

    def abandon(self, question: Q) -> None:
        """Note that the last caller has stopped waiting for the answer."""
        if self._is_joined and (question in self._in_flight or question in self._waiting):
            self._abandoned.add(question)

    def begin_request(self) -> Mapping[Q, A]:
        """Return the questions of the next request, which is in flight from now on."""
        assert not self._in_flight, "a request is in flight"
        for question in list(self._waiting)[:REQUEST_MAX]:
            self._in_flight[question] = self._waiting.pop(question)
        return self._in_flight.copy()

    def end_request(self, answers: Mapping[Q, C]) -> None:
        """Note that the request in flight was answered, or has failed.

        Args:
            answers: those that are worth keeping.
        """
        for question in self._abandoned & answers.keys():
            self._kept[question] = answers[question]
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        self._abandoned.difference_update(self._in_flight)
        self._in_flight.clear()

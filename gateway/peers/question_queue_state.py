"""Question queue: what is asked of one peer, one request at a time.

Rule: pure. Questions that come while a request is under way go together in the next one. A question
that waits is asked once for all who ask it. One that is under way is asked again, as the peer may
have decided before it was asked; or, where asking twice would do harm, it is joined, and an answer
that comes when nobody waits for it any more is kept for who asks next.
Must not know: requests, futures, what a question means.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

WAITING_MAX: Final = 100_000
"""Questions that wait for a request under way; more are not asked."""
REQUEST_MAX: Final = 10_000
"""Questions of one request."""
KEPT_MAX: Final = 100_000
"""Answers for which nobody waited; the oldest are forgotten, and their questions asked again."""

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")
C = TypeVar("C")


class QuestionQueue(Generic[Q, A, C]):
    """The questions to one peer, with what takes the answer to each, and answers that are kept."""

    __slots__ = ("_abandoned", "_is_joined", "_kept", "_under_way", "_waiting")

    def __init__(self, *, is_joined: bool) -> None:
        """Args: is_joined: a question is never asked again while it is under way."""
        self._is_joined = is_joined
        self._waiting: dict[Q, A] = {}
        self._under_way: dict[Q, A] = {}
        self._abandoned: set[Q] = set()
        """Questions for whose answers nobody waits any more."""
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
        """Return the answer that came when nobody waited for it, once; None: there is none."""
        return self._kept.pop(question, None) if self._kept else None

    def ask(self, question: Q, make_answer: Callable[[], A]) -> A | None:
        """Return what takes the answer to a question; None: too many wait."""
        self._abandoned.discard(question)
        if self._is_joined and question in self._under_way:
            return self._under_way[question]
        answer = self._waiting.get(question)
        if answer is None and len(self._waiting) < WAITING_MAX:
            answer = self._waiting[question] = make_answer()
        return answer

    def abandon(self, question: Q) -> None:
        """Note that who asked last does not wait for the answer any more."""
        if self._is_joined and (question in self._under_way or question in self._waiting):
            self._abandoned.add(question)

    def begin_request(self) -> Mapping[Q, A]:
        """Return the questions of the next request, which is under way from now on."""
        assert not self._under_way, "a request is under way"
        for question in list(self._waiting)[:REQUEST_MAX]:
            self._under_way[question] = self._waiting.pop(question)
        return self._under_way.copy()

    def end_request(self, answers: Mapping[Q, C]) -> None:
        """Note that the request under way was answered, or has failed.

        Args:
            answers: those that are worth keeping.
        """
        for question in self._abandoned & answers.keys():
            self._kept[question] = answers[question]
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        self._abandoned.difference_update(self._under_way)
        self._under_way.clear()

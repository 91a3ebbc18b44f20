"""Question queue: what is asked of one peer, one request at a time.

Rule: pure. Questions that come while a request is under way go together in the next one. A question
that waits is asked once for all who ask it. One that is under way is joined only where asking twice
would do harm; else it is asked again, as the peer may have decided before it was asked.
Must not know: requests, futures, what a question means.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

WAITING_MAX: Final = 100_000
"""Questions that wait for a request under way; more are not asked."""
REQUEST_MAX: Final = 10_000
"""Questions of one request."""

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class QuestionQueue(Generic[Q, A]):
    """The questions to one peer, each with what its answer is given to."""

    __slots__ = ("_is_joined", "_under_way", "_waiting")

    def __init__(self, *, is_joined: bool) -> None:
        """Args: is_joined: a question is never asked again while it is under way."""
        self._is_joined = is_joined
        self._waiting: dict[Q, A] = {}
        self._under_way: dict[Q, A] = {}

    @property
    def is_asking(self) -> bool:
        """Whether a request is under way."""
        return bool(self._under_way)

    @property
    def waiting_count(self) -> int:
        """How many questions wait for the next request."""
        return len(self._waiting)

    def ask(self, question: Q, make_answer: Callable[[], A]) -> A | None:
        """Return what gets the answer to a question; None: too many wait."""
        if self._is_joined and question in self._under_way:
            return self._under_way[question]
        answer = self._waiting.get(question)
        if answer is None and len(self._waiting) < WAITING_MAX:
            answer = self._waiting[question] = make_answer()
        return answer

    def begin_request(self) -> Mapping[Q, A]:
        """Return the questions of the next request, which is under way from now on."""
        assert not self._under_way, "a request is under way"
        for question in list(self._waiting)[:REQUEST_MAX]:
            self._under_way[question] = self._waiting.pop(question)
        return self._under_way.copy()

    def end_request(self) -> None:
        """Note that the request under way was answered, or has failed."""
        self._under_way.clear()

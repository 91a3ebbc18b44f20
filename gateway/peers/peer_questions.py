"""PeerQuestions: batches the questions to one peer into requests of one kind.

Rule: every question gets an answer within a named time: the peer's error code, or one that makes
the client retry.
Must not know: what a question means.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from kledger.gateway.peers.peer_link import PeerUnavailable
from kledger.gateway.peers.question_queue_state import QuestionQueue
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.runtime.containment import NamedUnit
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

UNANSWERED: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The answer if the peer is unavailable or silent; clients retry on it."""

Q = TypeVar("Q", bound=Hashable)
ResultT = TypeVar("ResultT")
AskPeer: TypeAlias = Callable[[Collection[Q]], Awaitable[Mapping[Q, ErrorCode]]]
"""Asks a peer in one request. Raises PeerUnavailable: it is unknown what the peer has done."""


class PeerQuestions(Generic[Q]):
    """Asks one peer."""

    def __init__(
        self,
        name: str,
        ask_peer: AskPeer[Q],
        *,
        timers: Timers,
        supervisor: Supervisor,
        log: RateLimitedLog,
        wait_ms_max: int,
        is_joined: bool,
    ) -> None:
        """Prepare.

        Args:
            name: of the peer and the kind of question, for log lines.
            ask_peer: makes one request.
            timers: of this broker.
            supervisor: runs requests.
            log: for a peer that is unavailable.
            wait_ms_max: how long a caller waits for an answer, which may still come later.
            is_joined: see `QuestionQueue`.
        """
        self._name = name
        self._ask_peer = ask_peer
        self._timers = timers
        self._supervisor = supervisor
        self._log = log
        self._wait_ms_max = wait_ms_max
        self._queue = QuestionQueue[Q, "asyncio.Future[ErrorCode]", ErrorCode](is_joined=is_joined)
        self._is_running = False
        self._is_closed = False

    def close(self) -> None:
        """Ask nothing more; callers get UNANSWERED, at the latest when their request ends."""
        self._is_closed = True

    async def ask(self, questions: Iterable[Q]) -> dict[Q, ErrorCode]:
        """Ask, and return the answer to each question."""
        if self._is_closed:
            return dict.fromkeys(questions, UNANSWERED)
        codes: dict[Q, ErrorCode] = {}
        answers: dict[Q, asyncio.Future[ErrorCode]] = {}
        for question in questions:
            kept = self._queue.take_kept(question)
            answer = None if kept is not None else self._queue.ask(question, _make_answer)
            codes[question] = UNANSWERED if kept is None else kept
            if answer is not None:
                answers[question] = answer
        self._start()
        await self._wait(answers.values())
        for question, answer in answers.items():
            if answer.done():
                codes[question] = answer.result()
            else:
                self._queue.abandon(question)
        return codes

    async def _wait(self, answers: Iterable["asyncio.Future[ErrorCode]"]) -> None:
        """Wait for all answers, for `wait_ms_max` at most."""
        is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._timers.call_after(self._wait_ms_max, partial(_resolve, is_over, None))
        try:
            while not is_over.done() and (missing := [each for each in answers if not each.done()]):
                waited: list[asyncio.Future[Any]] = [is_over, *missing]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()

    def _start(self) -> None:
        """Make requests if questions wait; a fault ends one request, and the others go on."""
        if self._queue.waiting_count and not self._is_running:
            self._is_running = True
            unit = NamedUnit("peer", self._name, self._start)
            self._supervisor.spawn(self._run(), f"questions to {self._name}", unit=unit)

    async def _run(self) -> None:
        """Make requests as long as questions wait."""
        try:
            while self._queue.waiting_count:
                await self._make_request()
        finally:
            self._is_running = False

    async def _make_request(self) -> None:
        asked, codes = self._queue.begin_request(), dict[Q, ErrorCode]()
        try:
            if not self._is_closed:
                codes.update(await self._ask_peer(asked))
        except PeerUnavailable as error:
            self._log.warning("%s: %s", self._name, error)
        finally:
            kept = {question: code for question, code in codes.items() if not code}
            self._queue.end_request(kept)
            for question, answer in asked.items():
                _resolve(answer, codes.get(question, UNANSWERED))


def _make_answer() -> "asyncio.Future[ErrorCode]":
    return asyncio.get_running_loop().create_future()


def _resolve(future: "asyncio.Future[ResultT]", result: ResultT) -> None:
    if not future.done():
        future.set_result(result)

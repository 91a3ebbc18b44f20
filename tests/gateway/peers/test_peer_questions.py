"""Questions to one peer: which are sent together, and which answers their callers get."""

import asyncio
import logging
from collections.abc import Collection, Mapping

import pytest

from kledger.gateway.peers.peer_link import PeerUnavailable
from kledger.gateway.peers.peer_questions import UNANSWERED, PeerQuestions
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.contained import Contained
from tests.gateway.running import until

WAIT_MS = 1_000
GUARD_S = 60
NONE = ErrorCode.NONE
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


class PeerOfTest:
    """A peer whose answers the test gives; `requests` has what it was asked."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self._answers: list[asyncio.Future[Mapping[str, ErrorCode]]] = []

    async def ask(self, questions: Collection[str]) -> Mapping[str, ErrorCode]:
        self.requests.append(list(questions))
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    def answer(self, **codes: ErrorCode) -> None:
        """Answer the newest request."""
        self._answers[-1].set_result(codes)

    def fail(self, error: Exception) -> None:
        self._answers[-1].set_exception(error)

    async def asked(self, count: int) -> None:
        """Wait for a number of requests."""
        async with asyncio.timeout(GUARD_S):
            await until(lambda: len(self.requests) == count)


class Asking:
    """Questions to a peer, and what they run with."""

    def __init__(self, *, is_joined: bool = True) -> None:
        self.clock = ManualClock()
        self.peer = PeerOfTest()
        self.crashes: list[BaseException] = []
        self.supervisor = Supervisor(self.crashes.append)
        self.questions = PeerQuestions(
            "broker 2, markers",
            self.peer.ask,
            timers=Timers(self.clock, self.supervisor),
            supervisor=self.supervisor,
            log=RateLimitedLog(logging.getLogger(__name__), 1, self.clock),
            wait_ms_max=WAIT_MS,
            is_joined=is_joined,
        )

    def ask(self, questions: str) -> "asyncio.Task[dict[str, ErrorCode]]":
        return asyncio.create_task(self.questions.ask(questions))

    async def gone(self, *tasks: "asyncio.Task[dict[str, ErrorCode]]") -> None:
        """Let the wait end."""
        async with asyncio.timeout(GUARD_S):
            await until(lambda: self.clock.sleeper_count > 0)
            self.clock.advance(WAIT_MS)
            await asyncio.wait(tasks)


async def result_of(task: "asyncio.Task[dict[str, ErrorCode]]") -> dict[str, ErrorCode]:
    async with asyncio.timeout(GUARD_S):
        return await task


async def test_questions_that_come_during_a_request_go_together_in_the_next() -> None:
    asking = Asking()
    first = asking.ask("a")
    await asking.peer.asked(1)
    others = [asking.ask("b"), asking.ask("cb")]
    await asyncio.sleep(0)
    asking.peer.answer(a=NONE)
    assert {"a": NONE} == await result_of(first)
    await asking.peer.asked(2)
    asking.peer.answer(b=NONE, c=REFUSED)
    assert [{"b": NONE}, {"b": NONE, "c": REFUSED}] == [await result_of(each) for each in others]
    assert [["a"], ["b", "c"]] == asking.peer.requests


async def test_a_peer_that_is_away_fails_its_questions_at_once_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asking = Asking()
    for number in (1, 2):
        asked = asking.ask("ab")
        await asking.peer.asked(number)
        asking.peer.fail(PeerUnavailable("no such socket"))
        assert {"a": UNANSWERED, "b": UNANSWERED} == await result_of(asked)
    assert ["broker 2, markers: no such socket"] == [each.message for each in caplog.records]
    assert 0 == asking.clock.monotonic_ms()


async def test_a_question_that_the_answer_lacks_is_unanswered() -> None:
    asking = Asking()
    asked = asking.ask("ab")
    await asking.peer.asked(1)
    asking.peer.answer(a=NONE)
    assert {"a": NONE, "b": UNANSWERED} == await result_of(asked)


async def test_an_answer_after_the_wait_is_there_for_the_next_question() -> None:
    """A transaction whose leader is slow does not get its marker twice."""
    asking = Asking()
    early = asking.ask("a")
    await asking.peer.asked(1)
    await asking.gone(early)
    assert {"a": UNANSWERED} == await result_of(early)
    asking.peer.answer(a=NONE)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert {"a": NONE} == await result_of(asking.ask("a"))
    assert [["a"]] == asking.peer.requests
    again = asking.ask("a")
    await asking.peer.asked(2)
    asking.peer.answer(a=NONE)
    assert {"a": NONE} == await result_of(again)


async def test_a_refusal_after_the_wait_is_asked_again() -> None:
    asking = Asking()
    early = asking.ask("a")
    await asking.peer.asked(1)
    await asking.gone(early)
    asking.peer.answer(a=REFUSED)
    again = asking.ask("a")
    await asking.peer.asked(2)
    asking.peer.answer(a=NONE)
    assert {"a": NONE} == await result_of(again)


async def test_a_joined_question_is_not_sent_again_while_it_is_under_way() -> None:
    asking = Asking()
    early = asking.ask("a")
    await asking.peer.asked(1)
    await asking.gone(early)
    again = asking.ask("a")
    await asyncio.sleep(0)
    asking.peer.answer(a=NONE)
    assert {"a": NONE} == await result_of(again)
    assert [["a"]] == asking.peer.requests


async def test_other_questions_are_sent_again_as_the_peer_may_have_decided_before() -> None:
    asking = Asking(is_joined=False)
    first = asking.ask("a")
    await asking.peer.asked(1)
    second = asking.ask("a")
    await asyncio.sleep(0)
    asking.peer.answer(a=REFUSED)
    await asking.peer.asked(2)
    asking.peer.answer(a=NONE)
    assert [{"a": REFUSED}, {"a": NONE}] == [await result_of(first), await result_of(second)]


async def test_all_questions_are_unanswered_at_the_end() -> None:
    asking = Asking()
    under_way = asking.ask("a")
    await asking.peer.asked(1)
    waiting = asking.ask("b")
    await asyncio.sleep(0)
    asking.questions.close()
    asking.peer.fail(PeerUnavailable("the connection has ended"))
    for task, question in ((under_way, "a"), (waiting, "b"), (asking.ask("c"), "c")):
        assert {question: UNANSWERED} == await result_of(task)
    assert [["a"]] == asking.peer.requests


async def test_a_fault_of_a_request_is_contained_and_the_next_question_is_asked(
    contained: Contained,
) -> None:
    asking = Asking()
    asked = asking.ask("a")
    await asking.peer.asked(1)
    asking.peer.fail(ZeroDivisionError())
    assert {"a": UNANSWERED} == await result_of(asked)
    again = asking.ask("a")
    await asking.peer.asked(2)
    asking.peer.answer(a=NONE)
    assert {"a": NONE} == await result_of(again)
    assert 1 == len(contained.errors)
    assert [] == asking.crashes


@pytest.mark.usefixtures("contained")
async def test_a_fault_of_a_request_does_not_leave_others_waiting() -> None:
    """They waited until their wait ended, and were not sent before the next question."""
    asking = Asking()
    first = asking.ask("a")
    await asking.peer.asked(1)
    waiting = asking.ask("b")
    await asyncio.sleep(0)
    asking.peer.fail(ZeroDivisionError())
    assert {"a": UNANSWERED} == await result_of(first)
    await asking.peer.asked(2)
    asking.peer.answer(b=NONE)
    assert {"b": NONE} == await result_of(waiting)

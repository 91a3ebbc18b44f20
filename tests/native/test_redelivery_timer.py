"""One timer for all that is to come again."""

from kledger.ledger import Position
from kledger.native.redelivery_timer import RedeliveryTimer
from kledger.subscriptions.model import Piece
from tests.native.client_words import rig

ONE, TWO = Position(5, 1), Position(5, 2)


async def test_records_come_again_in_their_time() -> None:
    async with rig() as rig_:
        came: list[list[Piece]] = []
        timer = RedeliveryTimer(rig_.clock, rig_.services.timers, came.append)
        timer.plan(ONE, 1, delay_ms=5_000)
        timer.plan(TWO, 1, delay_ms=1_000)
        await rig_.pass_ms(999)
        assert [] == came
        await rig_.pass_ms(1)
        assert [[Piece(TWO, 1)]] == came
        await rig_.pass_ms(4_000)
        assert [[Piece(TWO, 1)], [Piece(ONE, 1)]] == came


async def test_acknowledged_records_do_not() -> None:
    async with rig() as rig_:
        came: list[list[Piece]] = []
        timer = RedeliveryTimer(rig_.clock, rig_.services.timers, came.append)
        timer.forget(ONE, 1)
        timer.plan(ONE, 1, delay_ms=100)
        timer.forget_upto(TWO, 1)
        timer.plan(TWO, 1, delay_ms=100)
        timer.forget(TWO, 1)
        await rig_.pass_ms(1_000)
        timer.plan(ONE, 1, delay_ms=100)
        timer.clear()
        timer.clear()
        await rig_.pass_ms(1_000)
        assert [] == came

"""One timer for all redeliveries of a link."""

from kledger.ledger import Position
from kledger.native.client.redelivery_timer import RedeliveryTimer
from kledger.subscriptions.model import RecordMask
from tests.native.client_builders import rig

ONE, TWO = Position(5, 1), Position(5, 2)


async def test_records_are_redelivered_when_due() -> None:
    async with rig() as rig_:
        came: list[list[RecordMask]] = []
        timer = RedeliveryTimer(rig_.clock, rig_.services.timers, came.append)
        timer.schedule(ONE, 1, delay_ms=5_000)
        timer.schedule(TWO, 1, delay_ms=1_000)
        await rig_.pass_ms(999)
        assert [] == came
        await rig_.pass_ms(1)
        assert [[RecordMask(TWO, 1)]] == came
        await rig_.pass_ms(4_000)
        assert [[RecordMask(TWO, 1)], [RecordMask(ONE, 1)]] == came


async def test_acknowledged_records_do_not() -> None:
    async with rig() as rig_:
        came: list[list[RecordMask]] = []
        timer = RedeliveryTimer(rig_.clock, rig_.services.timers, came.append)
        timer.forget(ONE, 1)
        timer.schedule(ONE, 1, delay_ms=100)
        timer.forget_upto(TWO, 1)
        timer.schedule(TWO, 1, delay_ms=100)
        timer.forget(TWO, 1)
        await rig_.pass_ms(1_000)
        timer.schedule(ONE, 1, delay_ms=100)
        timer.clear()
        timer.clear()
        await rig_.pass_ms(1_000)
        assert [] == came

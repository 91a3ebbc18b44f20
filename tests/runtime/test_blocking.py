"""Both pools return the same results and raise the same errors."""

import threading
from collections.abc import Iterator

import pytest

from kledger.runtime.blocking import BlockingPool, BlockingRunner, InlinePool, PoolClosed


@pytest.fixture(params=[BlockingPool, InlinePool])
def pool(request: pytest.FixtureRequest) -> Iterator[BlockingRunner]:
    made: BlockingRunner = request.param()
    yield made
    made.close()


async def test_run_passes_arguments_and_returns_the_result(pool: BlockingRunner) -> None:
    assert 1024 == await pool.run(pow, 2, 10)


async def test_run_raises_what_the_call_raises(pool: BlockingRunner) -> None:
    with pytest.raises(ZeroDivisionError):
        await pool.run(divmod, 1, 0)


async def test_run_after_close_is_refused(pool: BlockingRunner) -> None:
    pool.close()
    pool.close()
    with pytest.raises(PoolClosed):
        await pool.run(pow, 2, 2)


async def test_a_call_may_yield_the_gil(pool: BlockingRunner) -> None:
    await pool.run(pool.yield_gil)
    pool.yield_gil()


async def test_only_the_blocking_pool_leaves_the_thread() -> None:
    pool = BlockingPool(threads=1)
    assert threading.current_thread() is await InlinePool().run(threading.current_thread)
    assert threading.current_thread() is not await pool.run(threading.current_thread)
    pool.close()

"""Compute processes that die in their first calls."""

import asyncio
from collections.abc import Callable, Sequence

from kledger.runtime.blocking import Arguments, Result
from kledger.runtime.compute_process import (
    Buffer,
    ComputeProcessDied,
    ComputeProcesses,
    Pause,
)


class DyingProcesses(ComputeProcesses):
    """As many calls as `deaths` fail; the rest are made."""

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.deaths = deaths

    def map(
        self,
        call: Callable[[memoryview, *Arguments, Pause], Result],
        jobs: Sequence[tuple[Buffer, *Arguments]],
        loop: asyncio.AbstractEventLoop,
    ) -> list[Result]:
        if self.deaths:
            self.deaths -= 1
            raise ComputeProcessDied("planted")
        return super().map(call, jobs, loop)

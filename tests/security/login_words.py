"""Limits of logins for tests: everything is recorded, and threads are not needed."""

from collections.abc import Awaitable, Callable
from typing import Any

from kledger.security.principal import Principal


class RecordedLogins:
    """`LoginLimits` that admit everything, or nothing."""

    def __init__(self, *, failure_delay_ms: int = 0) -> None:
        self.failure_delay_ms = failure_delay_ms
        self.is_admitting = True
        self.catch_up: Callable[[], Awaitable[None]] | None = None
        self.successes: list[tuple[str, str, str, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.work_count = 0

    def admits(self, _address: str) -> bool:
        return self.is_admitting

    def succeeded(self, principal: Principal, address: str, mechanism: str, listener: str) -> None:
        self.successes.append((principal.name, address, mechanism, listener))

    def failed(self, address: str, reason: str) -> None:
        self.failures.append((address, reason))

    async def run(self, work: Callable[[], Any]) -> Any:
        self.work_count += 1
        return work()

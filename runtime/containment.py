"""Containment: a programming error closes only the part of the server in which it occurred.

Rule: a callback, task or step that runs for a part of the server runs inside that part's unit of
failure. An unexpected exception is logged with its traceback and counted by the kind of the unit,
and the unit closes: its clients get an error and may open it again. Other units continue. A fault
that puts durable state in doubt is not contained: the store stops.
Must not know: which units there are, what closing one means.
Theory: docs/FAULTS.md.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVarTuple

from kledger.runtime.clock import Clock
from kledger.runtime.logs import RateLimitedLog
from kledger.runtime.metrics import Metrics

logger = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")

FAULTS_PER_SECOND = 10
"""A fault that a client can repeat must not fill the disk with tracebacks."""


class FaultUnit(Protocol):
    """A part of the server that is closed as a whole: a connection, a subscription, a partition."""

    @property
    def unit_kind(self) -> str:
        """The label of its faults in the metrics: one of a few words."""
        ...

    @property
    def unit_name(self) -> str:
        """Its name among the units of its kind; part of log lines."""
        ...

    def close_after_fault(self, error: Exception) -> None:
        """Close; plain, does nothing when it is closed already."""
        ...


def _nothing_to_close() -> None:
    """Do nothing: the unit holds nothing open."""


@dataclass(frozen=True, slots=True)
class NamedUnit:
    """A unit that is not an object, such as one transactional id, or one timer.

    Attributes:
        close: closes it; by default it does nothing, and the caller of what failed tries again.
    """

    unit_kind: str
    unit_name: str
    close: Callable[[], None] = _nothing_to_close

    def close_after_fault(self, error: Exception) -> None:
        """Close it."""
        self.close()


def unit_of(callback: Callable[..., object], kind: str) -> NamedUnit:
    """Return a unit for a callback that was added without one."""
    return NamedUnit(kind, getattr(callback, "__qualname__", None) or repr(callback))


class Containment:
    """Handles the faults of all units; one per server."""

    def __init__(self, clock: Clock, metrics: Metrics | None = None) -> None:
        """Args: metrics: where faults are counted, as `contained_faults` by the label `unit`."""
        self.metrics = metrics or Metrics()
        self._log = RateLimitedLog(logger, FAULTS_PER_SECOND, clock)

    def run(
        self, unit: FaultUnit, call: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> None:
        """Make a call and drop its result; an exception closes `unit`."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - that is what this is for
            self.failed(unit, error)

    @contextmanager
    def guarding(self, unit: FaultUnit) -> Iterator[None]:
        """Let a fault of the block close `unit`; the block may await."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - that is what this is for
            self.failed(unit, error)

    def failed(self, unit: FaultUnit, error: Exception) -> None:
        """Log and count a fault, and close the unit that it happened in."""
        kind, name = unit.unit_kind, unit.unit_name
        counter = self.metrics.counter(
            "contained_faults", "faults that closed a part of the server", {"unit": kind}
        )
        counter.value += 1
        self._log.fault("a fault here closes %s %s", kind, name, error=error)
        try:
            unit.close_after_fault(error)
        except Exception as second:  # noqa: BLE001 - it must not reach units beside this one
            self._log.fault("%s %s could not be closed after it", kind, name, error=second)

"""Metrics: named whole numbers that any part may count and the admin port shows.

Rule: counting costs one addition to an attribute; whoever wants a view asks for a snapshot. A name
is words joined by underscores, its unit last: `produce_bytes`, `fetch_wait_ms`.
Must not know: who looks, or in which format it is shown.
"""

from collections.abc import Callable, Mapping


class Counter:
    """A number that only grows: `counter.value += n` on a hot path, `add` elsewhere."""

    __slots__ = ("name", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Count `amount` more."""
        self.value += amount


class Metrics:
    """All counters and gauges of one server, by name."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Callable[[], int]] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of that name, a new one at zero if there is none."""
        assert name not in self._gauges, f"{name} is a gauge"
        return self._counters.setdefault(name, Counter(name))

    def gauge(self, name: str, read: Callable[[], int]) -> None:
        """Show what `read` returns at the time of a snapshot under `name`."""
        assert name not in self._counters, f"{name} is a counter"
        self._gauges[name] = read

    def drop(self, name: str) -> None:
        """Show nothing under `name` any more; nothing if there was none."""
        self._counters.pop(name, None)
        self._gauges.pop(name, None)

    def snapshot(self) -> dict[str, int]:
        """Return every name with its number at this moment, sorted by name."""
        values = {counter.name: counter.value for counter in self._counters.values()}
        values.update((name, read()) for name, read in self._gauges.items())
        return dict(sorted(values.items()))


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labelled(name: str, labels: Mapping[str, str]) -> str:
    """Return the name of one of several metrics of a kind, as Prometheus writes it."""
    pairs = [f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items()]
    return f"{name}{{{','.join(pairs)}}}"

"""Metrics: named whole numbers that any part may count and the admin listener shows.

Rule: counting costs one addition to an attribute; a view is computed when it is requested. A name
is words joined by underscores, its unit last: `received_bytes`, `request_ms`. Several numbers of
one kind share a name and differ by their labels.
Must not know: the formats in which numbers are shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_NO_LABELS: Mapping[str, str] = {}
_Key = tuple[str, tuple[tuple[str, str], ...]]


class Counter:
    """A number that only grows: `counter.value += n` on a hot path, `add` elsewhere."""

    __slots__ = ("about", "value")

    def __init__(self, about: str = "") -> None:
        self.about = about
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Count `amount` more."""
        self.value += amount


@dataclass(slots=True)
class Family:
    """All numbers of one name at one moment.

    Attributes:
        about: what is counted, in a few words.
        samples: their labels and values; every one has the same label names.
    """

    name: str
    about: str
    is_counter: bool
    samples: list[tuple[dict[str, str], int]] = field(default_factory=list)


class Metrics:
    """All counters and gauges of one server, by name and labels."""

    def __init__(self) -> None:
        self._counters: dict[_Key, Counter] = {}
        self._gauges: dict[_Key, tuple[str, Callable[[], int]]] = {}

    def counter(
        self, name: str, about: str = "", labels: Mapping[str, str] = _NO_LABELS
    ) -> Counter:
        """Return the counter of that name and labels, a new one at zero if there is none."""
        key = _key(name, labels)
        assert key not in self._gauges, f"{name} is a gauge"
        return self._counters.setdefault(key, Counter(about))

    def show(self, name: str, counter: Counter, labels: Mapping[str, str] = _NO_LABELS) -> None:
        """Show a counter that its owner made; it replaces the one of that name and labels."""
        key = _key(name, labels)
        assert key not in self._gauges, f"{name} is a gauge"
        self._counters[key] = counter

    def gauge(
        self,
        name: str,
        read: Callable[[], int],
        about: str = "",
        labels: Mapping[str, str] = _NO_LABELS,
    ) -> None:
        """Show under `name` what `read` returns when a view is requested."""
        key = _key(name, labels)
        assert key not in self._counters, f"{name} is a counter"
        self._gauges[key] = about, read

    def drop(self, name: str, labels: Mapping[str, str] = _NO_LABELS) -> None:
        """Stop showing the number of that name and labels; an unknown one is ignored."""
        key = _key(name, labels)
        self._counters.pop(key, None)
        self._gauges.pop(key, None)

    def families(self) -> list[Family]:
        """Return every name with its numbers at this moment, sorted by name and labels."""
        values = [(key, one.about, True, one.value) for key, one in self._counters.items()]
        values += [(key, about, False, read()) for key, (about, read) in self._gauges.items()]
        families: dict[str, Family] = {}
        for (name, labels), about, is_counter, value in sorted(values):
            family = families.setdefault(name, Family(name, about, is_counter))
            family.samples.append((dict(labels), value))
        return list(families.values())

    def snapshot(self) -> dict[str, int]:
        """Return the same as one flat dict, with labels in the key, as in `labelled`."""
        return {
            labelled(family.name, labels): value
            for family in self.families()
            for labels, value in family.samples
        }


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labelled(name: str, labels: Mapping[str, str]) -> str:
    """Return a name with its labels, as Prometheus writes it."""
    if not labels:
        return name
    pairs = [f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items()]
    return f"{name}{{{','.join(pairs)}}}"


def _key(name: str, labels: Mapping[str, str]) -> _Key:
    return name, tuple(labels.items())

"""Exposition: the metrics of a server as Prometheus reads them.

Rule: names get the prefix `kledger_`, except those that another system has made well known; what
is counted in milliseconds is shown in seconds, as is the custom there.
Must not know: HTTP, who counts.
"""

import re
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kledger.runtime.metrics import Family, Metrics

PREFIX: Final = "kledger_"
OPENMETRICS: Final = "application/openmetrics-text"
EXTERNAL_PREFIXES: Final = ("pulsar_",)
"""Beginnings of names that stay as they are."""
_EXTERNAL_COUNTERS: Final = re.compile(rb"^((?:# (?:HELP|TYPE) )?pulsar_\w+)_total\b", re.MULTILINE)


class Exposition(Collector):
    """The page of one server: its metrics, and those of its process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return everything at this moment, and its content type.

        Args:
            accept: the header of that name: who asks for OpenMetrics gets it.
        """
        encode, content_type = choose_encoder(accept)
        page = encode(self._registry)
        if not content_type.startswith(OPENMETRICS):
            # Only there must the name of a counter end so; the library writes it everywhere.
            page = _EXTERNAL_COUNTERS.sub(rb"\1", page)
        return page, content_type

    def describe(self) -> list[Metric]:
        """Name nothing in advance: metrics come and go."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give the metrics of the server in the library's form."""
        return map(_shown, self._metrics.families())


def _shown(family: Family) -> Metric:
    name, scale = family.name, 1
    if name.endswith("_ms"):
        name, scale = name.removesuffix("ms") + "seconds", 1_000
    if not name.startswith(EXTERNAL_PREFIXES):
        name = PREFIX + name
    kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    labels = list(family.samples[0][0])
    shown = kind(name, family.about, labels=labels)
    for values, number in family.samples:
        shown.add_metric([values[each] for each in labels], number / scale)
    return shown

"""Exposition: the metrics of a server in Prometheus' format.

Rule: names get the prefix `kledger_`, except those that are known from another system; counters in
milliseconds are shown in seconds, as is usual there.
Must not know: HTTP, the meaning of metrics.
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
"""Names that begin so get no prefix of ours."""
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
            accept: the `Accept` header, which can ask for OpenMetrics.
        """
        encode, content_type = choose_encoder(accept)
        page = encode(self._registry)
        if not content_type.startswith(OPENMETRICS):
            # Only OpenMetrics demands the suffix `_total`; the library always writes it.
            page = _EXTERNAL_COUNTERS.sub(rb"\1", page)
        return page, content_type

    def describe(self) -> list[Metric]:
        """Return no metrics in advance, as they change while the server runs."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the server in the library's form."""
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

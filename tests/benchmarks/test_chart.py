"""The chart is well-formed and puts ratios where they belong."""

from xml.etree import ElementTree as ET

import pytest

from benchmarks.cases import KAFKA, OS
from benchmarks.chart import ratio_chart, x_of
from benchmarks.targets import Target, Verdict


def verdict(found: float | None, against: str | None = KAFKA) -> Verdict:
    target = Target(what="a < b", case="c", figure="f", subject=OS, against=against, limit=0.8)
    return Verdict(target=target, found=found)


def test_chart_is_xml_with_a_bar_for_each_ratio() -> None:
    chart = ratio_chart([verdict(0.5), verdict(1.5), verdict(None), verdict(9.0, against=None)])
    root = ET.fromstring(chart)
    rows = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(rows) == 1 + 2


def test_axis_is_logarithmic_and_cut_off() -> None:
    assert x_of(2.0) - x_of(1.0) == pytest.approx(x_of(1.0) - x_of(0.5))
    assert x_of(1e9) == x_of(8.0)
    assert x_of(1e-9) == x_of(0.125)


def test_same_figures_give_the_same_bytes() -> None:
    assert ratio_chart([verdict(0.5)]) == ratio_chart([verdict(0.5)])

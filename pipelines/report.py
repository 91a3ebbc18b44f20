"""The demonstration's report: one HTML page with charts that needs no network.

Rule: every figure was measured or read back in this run. Must not know: how.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the report: what was done, what came out, and how long it took."""

    name: str
    outcome: str
    seconds: float


def write_report(
    path: Path, steps: list[Step], delays: pd.DataFrame, windows: pd.DataFrame
) -> None:
    """Write the page; ``delays`` and ``windows`` are the results that were read back."""
    figures = [_heat_map(delays), _days(windows), _seconds(steps)]
    charts = [
        pio.to_html(figure, full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures)
    ]
    rows = "".join(
        f"<tr><td>{step.name}</td><td>{step.outcome}</td><td>{step.seconds:.1f}</td></tr>"
        for step in steps
    )
    path.write_text(
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<title>kledger: a year of flights</title><style>"
        "body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:70rem;color:#222}"
        "table{border-collapse:collapse}td,th{padding:.3rem .8rem;border-bottom:1px solid #ddd;"
        "text-align:left}td:last-child{text-align:right}</style></head><body>"
        "<h1>A year of flights through kledger</h1>"
        "<p>Loaded by three Kafka clients, read by Spark's own kafka source as a batch and as a "
        "stream, written back to Kafka topics, and compared with pandas. With a server of its own "
        "the demonstration then offloads the flights and reads them again from the tier alone.</p>"
        f"<table><tr><th>step</th><th>outcome</th><th>seconds</th></tr>{rows}</table>"
        + "".join(charts)
        + "</body></html>",
        encoding="utf-8",
    )


def _heat_map(delays: pd.DataFrame) -> go.Figure:
    grid = delays.pivot_table(index="name", columns="hour", values="dep_delay_mean")
    figure = go.Figure(
        go.Heatmap(
            z=grid.to_numpy(),
            x=[int(hour) for hour in grid.columns],
            y=list(grid.index),
            colorscale="RdYlGn",
            reversescale=True,
            colorbar={"title": "minutes"},
        )
    )
    return figure.update_layout(
        title="Mean departure delay per carrier and hour (batch)",
        xaxis_title="hour of scheduled departure",
        height=520,
    )


def _days(windows: pd.DataFrame) -> go.Figure:
    days = windows.groupby("window_start", as_index=False)[["flights", "dep_delay_sum"]].sum()
    figure = go.Figure()
    figure.add_scatter(x=days["window_start"], y=days["flights"], name="flights")
    figure.add_scatter(
        x=days["window_start"],
        y=days["dep_delay_sum"] / days["flights"],
        name="mean delay in minutes",
        yaxis="y2",
    )
    return figure.update_layout(
        title="Flights and delay per day (stream, event-time windows)",
        yaxis2={"overlaying": "y", "side": "right"},
        height=420,
    )


def _seconds(steps: list[Step]) -> go.Figure:
    figure = go.Figure(
        go.Bar(x=[step.seconds for step in steps], y=[step.name for step in steps], orientation="h")
    )
    return figure.update_layout(
        title="Where the time went", xaxis_title="seconds", height=360, yaxis_autorange="reversed"
    )
